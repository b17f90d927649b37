package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/proxy"
)

// Proxy is one forward proxy of a fleet.
//
// +kubebuilder:object:root=true
type Proxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   proxy.Spec   `json:"spec"`
	Status proxy.Status `json:"status,omitzero"`
}

// DeepCopyInto writes a copy that shares nothing with p.
func (p *Proxy) DeepCopyInto(out *Proxy) {
	*out = *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec = p.Spec.Clone()
	out.Status = p.Status.Clone()
}

// ProxyList is a list of proxies.
//
// +kubebuilder:object:root=true
type ProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Proxy `json:"items"`
}
