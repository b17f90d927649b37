// Package walk holds nothing but tests: random walks that drive the reconciler through histories of edits, deletions, new
// lives of a name, rotated and missing Secrets, provider faults, lost and late answers, reads that lag, crashes between any
// two effects, and several leaders with clocks that differ. After each step a judge that knows the whole world looks for two
// instances of one proxy, instances that nobody owns, and deletions that nobody wanted; at the end of each history, when all
// faults have stopped, everything must be as the specs ask for.
//
// The walks are themselves tested: a state machine that is plausible and wrong must be found guilty, and so must the real
// one with any of its protections taken away.
package walk
