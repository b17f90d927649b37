// Package gcp makes instances that are virtual machines of Google Compute Engine.
//
// Nothing is ever waited for: an insert and a delete are begun, and what became of them is seen by the fleet's polls. An insert
// that was accepted and failed later, for want of capacity, quota or addresses, leaves no machine behind and tells its cause
// only in its operation; the provider remembers that operation, asks for it once a poll, and finds it again after a restart.
//
// A machine that runs is seen through a list of the whole fleet that is at most half a minute old, so that the number of
// requests hardly depends on the number of machines. That a machine is gone is always asked for directly.
//
// Package gcptest is a Compute Engine to test against. docs/gcp-provider.md tells how to set the provider up, what each reason
// means, and what it costs.
package gcp
