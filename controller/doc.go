// Package controller joins a fleet to a Kubernetes cluster. [Store] keeps the records of proxies as Proxy objects, an
// [Elector] says which replica leads, and a [HealthWriter] shows what the checks of providers found as ProviderHealth objects.
//
// There is no state machine here. The reconciler of a fleet works over the store as over any other; what it may rely on is the
// contract of [proxy.Store], and package storetest shows on a real API server that it holds.
package controller
