// Package proxy is the model: what a forward proxy is declared to be, what is known of it, and the contracts of the
// stores that keep both.
//
// A [Proxy] is a record with a [Spec], written by whoever wants the proxy, and a [Status], written by the fleet. The
// fleet reads and writes records through a [Store]; whoever declares proxies does so through a [Declarer]. [Memory] is
// both, in the memory of the process; other packages keep records in a file or in a Kubernetes API server. Package
// storetest holds the tests that each of them passes.
//
// A proxy is identified by namespace and name, and its instance by an incarnation, never by host and port: gateways sell
// one host and port to many users.
package proxy
