// Package v1alpha1 has the Kubernetes objects of a fleet: Proxy and ProviderHealth, in the group crawl.example.com.
//
// A Proxy is a thin wrapper round the model of package proxy, and its document is the one that a fleet without Kubernetes
// reads too. The schema of the CustomResourceDefinitions is generated from the model, and refuses what [proxy.Validate] and
// [proxy.ValidateUpdate] refuse.
//
// +kubebuilder:object:generate=true
// +groupName=crawl.example.com
package v1alpha1
