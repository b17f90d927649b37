// Package provider is the contract between the fleet and whatever makes instances: a cloud, a hypervisor, a cluster, or
// this process.
//
// A [Provider] makes, finds and deletes instances by names that are known before they exist, and marks each with the fleet
// and the proxy that it belongs to. That is all that the fleet relies on: it holds no state about instances that it could
// not read again. [Error] and its closed set of classes tell the fleet what to do next; docs/provider-contract.md says what
// that is, method by method. Package providertest holds the tests that every provider passes.
package provider
