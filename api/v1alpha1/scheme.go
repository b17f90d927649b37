package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and Version are what apiVersion says, joined by a slash.
const (
	Group   = "crawl.example.com"
	Version = "v1alpha1"
)

// GroupVersion returns Group and Version as Kubernetes libraries take them.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// AddToScheme makes the objects known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Proxy{}, &ProxyList{}, &ProviderHealth{}, &ProviderHealthList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
