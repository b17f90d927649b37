// Package gc deletes instances that no record knows: the net under the reconciler, for what a crash, a lost state file or a
// create that its backend executed long after its time has left running.
//
// An orphan is an instance with the mark of this fleet whose proxy is not in the records. A stray is an instance whose proxy
// is there, and holds another one. A [Sweeper] lists what each provider has and then reads the records, in this order: the
// fleet writes down what it is about to make before it makes it, so what was listed and is not in records that were read
// later is nobody's, however busy the fleet is meanwhile. It deletes by incarnation, so that nothing that came later under
// the same name is hit.
//
// What the order cannot protect from are records that are wrong: a backup that was restored with new UIDs, a store that is
// empty. For these there is a minimum age, and the brake: when a large part of what a provider has would go, nothing of it
// goes until an operator allows it; see [Sweeper.Allow].
package gc
