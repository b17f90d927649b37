package v1alpha1

import _ "embed"

//go:embed crds/crawl.example.com_proxies.yaml
var proxies string

//go:embed crds/crawl.example.com_providerhealths.yaml
var providerHealths string

// CRDs returns the CustomResourceDefinitions of the objects, as YAML documents that kubectl apply takes.
func CRDs() []byte { return []byte(proxies + providerHealths) }
