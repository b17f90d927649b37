package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/proxy"
)

// The columns are those of kubectl get. The name is a label of metrics and of instances, and they are no longer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=proxies,singular=proxy
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: must be 1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit"
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Provider,type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name=IP,type=string,JSONPath=`.status.instance.host`
// +kubebuilder:printcolumn:name=Latency,type=integer,JSONPath=`.status.latencyMillis`,description="In milliseconds, of the last probe that was reported."
// +kubebuilder:printcolumn:name=Healthy,type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Provisioned")].message`,description="What the instance waits for or lacks."

// Proxy is one forward proxy of a fleet.
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

// +kubebuilder:object:root=true

// ProxyList is a list of proxies.
type ProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Proxy `json:"items"`
}
