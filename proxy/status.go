package proxy

import "slices"

// StatusFormat is the version of the format that this release writes statuses in. A status with a higher one was written
// by a newer release and is not touched.
const StatusFormat = 1

// Phase sums a status up in a word. It is computed from the rest and never set by hand.
type Phase string

// The phases.
const (
	// Pending: nothing has been tried, or what was there is gone.
	Pending Phase = "Pending"
	// Provisioning: an instance is on its way.
	Provisioning Phase = "Provisioning"
	// Probing: it is there, and there is no verdict on its health yet.
	Probing Phase = "Probing"
	// Ready: it is there and healthy. Only Ready proxies are leased.
	Ready Phase = "Ready"
	// Unhealthy: it is there, and its probes fail.
	Unhealthy Phase = "Unhealthy"
	// Replacing: it is taken out of service because the spec wants another.
	Replacing Phase = "Replacing"
	// Deleting: the record and its instance are on their way out.
	Deleting Phase = "Deleting"
	// Failed: it cannot be made as it is declared.
	Failed Phase = "Failed"
)

// Status is what the fleet knows of a proxy. Only the reconciler writes it.
type Status struct {
	// Format is the version of the format that this status is written in.
	Format int32 `json:"format,omitempty"`
	Phase  Phase `json:"phase,omitempty"`
	// Conditions are sorted by type; there is at most one of each.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	Instance   Instance    `json:"instance,omitzero"`
	// LatencyMillis is how long the last probe that was reported took, in milliseconds.
	LatencyMillis int64 `json:"latencyMillis,omitempty"`
	// LastHealthCheckTime is when the last probe that changed the status was made. Most probes change nothing.
	LastHealthCheckTime Time `json:"lastHealthCheckTime,omitzero"`
	// FirstReadyTime is when the proxy was Ready for the first time, whatever became of it since; zero where it is not
	// known when it was declared.
	FirstReadyTime Time `json:"firstReadyTime,omitzero"`
	// ObservedGeneration is the generation of the spec that the last pass saw.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Instance is what the fleet knows of the one instance that a proxy has or is about to have. It is written as an intent
// before the provider is asked. Without an ID nothing is there and nothing is on its way.
type Instance struct {
	// Provider is the name of the provider that has it, whatever the spec says meanwhile.
	Provider string `json:"provider,omitempty"`
	// ID is the provider's, known before the instance is made.
	ID string `json:"id,omitempty"`
	// Incarnation is the backend's own id of this very instance. A successor of the same name has another.
	Incarnation string `json:"incarnation,omitempty"`
	// Host and Port are where its proxy listens.
	Host string `json:"host,omitempty"`
	Port int32  `json:"port,omitempty"`

	// Retiring is the incarnation that is replaced. It stays until the successor is Ready, so that others wait their turn.
	Retiring string `json:"retiring,omitempty"`

	// Hash is of the inputs of the last attempt. The next five outlive the instance.
	Hash string `json:"hash,omitempty"`
	// Attempt counts the creates from these inputs since an instance of them ran long enough.
	Attempt int32 `json:"attempt,omitempty"`
	// Planned is when the last attempt was written down: for some time after it, a provider that knows nothing of the
	// instance proves nothing.
	Planned Time `json:"planned,omitzero"`
	// Retry is the earliest time of the next attempt from the same inputs.
	Retry Time `json:"retry,omitzero"`
	// Asked is the value of the retry annotation that the last attempt answered.
	Asked string `json:"asked,omitempty"`
}

// ConditionType names an aspect of a proxy.
type ConditionType string

// The conditions of a proxy.
const (
	// Provisioned: the instance or endpoint is there and as the spec wants it.
	Provisioned ConditionType = "Provisioned"
	// Healthy: its probes succeed. It speaks of Instance.Incarnation only.
	Healthy ConditionType = "Healthy"
	// Resolved: all that the spec refers to was found.
	Resolved ConditionType = "Resolved"
)

// ConditionStatus is True, False or Unknown.
type ConditionStatus string

// The values of a condition.
const (
	True    ConditionStatus = "True"
	False   ConditionStatus = "False"
	Unknown ConditionStatus = "Unknown"
)

// Condition is one aspect of a proxy, as Kubernetes conditions are.
type Condition struct {
	Type   ConditionType   `json:"type"`
	Status ConditionStatus `json:"status"`
	// Reason is a stable word in CamelCase.
	Reason string `json:"reason,omitempty"`
	// Message is for people.
	Message string `json:"message,omitempty"`
	// LastTransitionTime is when Status last changed.
	LastTransitionTime Time `json:"lastTransitionTime,omitzero"`
}

// Condition returns the condition of a type, and whether there is one.
func (s *Status) Condition(t ConditionType) (Condition, bool) {
	if i := s.index(t); i < len(s.Conditions) && s.Conditions[i].Type == t {
		return s.Conditions[i], true
	}
	return Condition{Type: t, Status: Unknown}, false
}

// SetCondition puts a condition in the place of the one of its type. The time of the last transition is kept while the
// status of the condition is.
func (s *Status) SetCondition(c Condition) {
	i := s.index(c.Type)
	if i == len(s.Conditions) || s.Conditions[i].Type != c.Type {
		s.Conditions = slices.Insert(s.Conditions, i, c)
		return
	}
	if s.Conditions[i].Status == c.Status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = c
}

// RemoveCondition takes the condition of a type away.
func (s *Status) RemoveCondition(t ConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c Condition) bool { return c.Type == t })
}

// index is where the condition of a type is or belongs.
func (s *Status) index(t ConditionType) int {
	i := slices.IndexFunc(s.Conditions, func(c Condition) bool { return c.Type >= t })
	if i < 0 {
		return len(s.Conditions)
	}
	return i
}

// Clone returns a copy that shares nothing with s.
func (s Status) Clone() Status {
	s.Conditions = slices.Clone(s.Conditions)
	return s
}

// Equal says whether two statuses are the same.
func (s Status) Equal(o Status) bool {
	sameConditions := slices.Equal(s.Conditions, o.Conditions)
	return sameConditions && s.Format == o.Format && s.Phase == o.Phase && s.Instance == o.Instance &&
		s.LatencyMillis == o.LatencyMillis && s.LastHealthCheckTime == o.LastHealthCheckTime &&
		s.FirstReadyTime == o.FirstReadyTime && s.ObservedGeneration == o.ObservedGeneration
}
