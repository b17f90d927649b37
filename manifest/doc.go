// Package manifest reads the YAML documents that declare a fleet, and keeps a store like them.
//
// The documents are those that kubectl apply takes, of the kinds Proxy and Secret, and one FleetConfiguration with what
// only a fleet without Kubernetes needs. They are read strictly: whatever is not understood is an error that names the
// place, and [Load] returns all errors of all files at once. An [Applier] declares the proxies of a [Set] and follows the
// files while they change; [Secrets] holds the Secrets of the set that is in force.
//
// A set is taken whole or not at all. No error holds a value of a Secret.
package manifest
