package v1alpha1_test

import (
	"fmt"
	"log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/proxy"
)

// A scheme lets a Kubernetes client read and write the objects.
func Example() {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	p := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: "eu-1"},
		Spec:       proxy.Spec{Provider: "cloud", Placement: proxy.Placement{Zone: "europe-west1-b"}},
	}
	kinds, _, err := scheme.ObjectKinds(p)
	if err != nil {
		log.Fatal(err)
	}
	p.SetGroupVersionKind(kinds[0])

	document, err := yaml.Marshal(p)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", document)
	// Output:
	// apiVersion: crawl.example.com/v1alpha1
	// kind: Proxy
	// metadata:
	//   name: eu-1
	//   namespace: crawl
	// spec:
	//   placement:
	//     zone: europe-west1-b
	//   provider: cloud
}
