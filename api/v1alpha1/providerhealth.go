package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/proxy"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=providerhealths,singular=providerhealth,shortName=ph,scope=Cluster
// +kubebuilder:printcolumn:name=Type,type=string,JSONPath=`.status.type`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name=Targets,type=string,JSONPath=`.status.targetsReady`
// +kubebuilder:printcolumn:name="Last Check",type=date,JSONPath=`.status.lastCheckTime`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`

// ProviderHealth is what the last check of a provider found. It bears the provider's name, and is written by the fleet only.
type ProviderHealth struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status ProviderHealthStatus `json:"status,omitzero"`
}

// ProviderHealthStatus is what the last check of a provider found.
type ProviderHealthStatus struct {
	// Type is the type of the provider, such as gcp.
	Type string `json:"type,omitempty"`
	// Ready is True if all targets are, and False if one is not.
	Ready proxy.ConditionStatus `json:"ready,omitempty"`
	// TargetsReady is how many targets are ready, of how many: "2/3".
	TargetsReady string `json:"targetsReady,omitempty"`
	// LastCheckTime is when the last check ended.
	LastCheckTime proxy.Time `json:"lastCheckTime,omitzero"`
	// Targets are the verdicts, by name.
	//
	// +listType=map
	// +listMapKey=name
	Targets []TargetHealth `json:"targets,omitempty"`
}

// TargetHealth is the last verdict on one target of a provider, such as a host.
type TargetHealth struct {
	Name  string                `json:"name"`
	Ready proxy.ConditionStatus `json:"ready"`
	// Reason is a stable word in CamelCase.
	Reason string `json:"reason,omitempty"`
	// Message is for people.
	Message string `json:"message,omitempty"`
	// Details are facts that the check came across, such as versions and free space.
	Details map[string]string `json:"details,omitempty"`
	// LastTransitionTime is when the target began to be ready, or to be not ready for this reason.
	LastTransitionTime proxy.Time `json:"lastTransitionTime,omitzero"`
}

// +kubebuilder:object:root=true

// ProviderHealthList is a list of check results.
type ProviderHealthList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ProviderHealth `json:"items"`
}
