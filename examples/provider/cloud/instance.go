package cloud

import (
	"regexp"
	"strings"
	"time"
)

// State is what an instance does.
type State string

// The states, in their order. From Running an instance may also go to Stopped, when its process dies, and from any to
// Stopping, when it is deleted.
const (
	Provisioning State = "PROVISIONING"
	Running      State = "RUNNING"
	Stopped      State = "STOPPED"
	Stopping     State = "STOPPING"
	Gone         State = "GONE"
)

// word is what zones, names, ids of requests and labels consist of.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Instance is one instance for ever: what is gone stays in the history. It is a record of moments, from which its state at
// any other moment follows; nothing has to happen for time to pass, and an answer that lags is one as of an earlier moment.
type Instance struct {
	// ID is a number that no other instance ever has.
	ID        int64             `json:"id,string"`
	Zone      string            `json:"zone"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	RequestID string            `json:"requestID,omitempty"`
	// Port is where its proxy listens, on 127.0.0.1.
	Port int `json:"port"`
	// Failure is why its creation comes to nothing, in a word. Empty: it does not.
	Failure string `json:"failure,omitempty"`

	Created time.Time `json:"created"`
	// Running is the end of provisioning.
	Running time.Time `json:"running"`
	// Died is when its process was found dead; zero while it lives.
	Died time.Time `json:"died,omitzero"`
	// Stopping is when its deletion began, or zero.
	Stopping time.Time `json:"stopping,omitzero"`
	// Ended is from when on it does not exist; zero while nothing ends it.
	Ended time.Time `json:"ended,omitzero"`
}

// exists says whether there is such an instance at a moment.
func (i *Instance) exists(t time.Time) bool { return !t.Before(i.Created) && !reached(t, i.Ended) }

// runs says whether there is to be a process at a moment.
func (i *Instance) runs(t time.Time) bool {
	return i.exists(t) && i.Failure == "" && !reached(t, i.Died) && !reached(t, i.Stopping)
}

// State returns what the instance does at a moment at or after its making.
func (i *Instance) State(t time.Time) State {
	switch {
	case reached(t, i.Ended):
		return Gone
	case reached(t, i.Stopping):
		return Stopping
	case reached(t, i.Died):
		return Stopped
	case reached(t, i.Running):
		return Running
	}
	return Provisioning
}

// reached says whether something that has its moment has happened by t.
func reached(t, moment time.Time) bool { return !moment.IsZero() && !t.Before(moment) }

// has says whether the instance bears all labels.
func (i *Instance) has(labels map[string]string) bool {
	for key, value := range labels {
		if got, ok := i.Labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// Spec is what an instance is made from.
type Spec struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	// RequestID makes a repeated create harmless: it is answered by what the first one made.
	RequestID string `json:"requestID"`
	// Username and Password are what the proxy asks its clients for. It asks for nothing when both are empty.
	Username string `json:"username"`
	Password string `json:"password"`
}

// validate refuses among others whatever tinyproxy could not read from its configuration, or would read as more than
// credentials.
func (s Spec) validate() error {
	var bad []string
	check := func(field, value string, optional bool) {
		if !word.MatchString(value) && (value != "" || !optional) {
			bad = append(bad, field)
		}
	}
	check("name", s.Name, false)
	check("requestID", s.RequestID, true)
	for key, value := range s.Labels {
		check("labels", key, false)
		check("labels", value, true)
	}
	open := s.Username == "" && s.Password == ""
	check("username", s.Username, open)
	check("password", s.Password, open)
	if len(bad) == 0 {
		return nil
	}
	return &apiError{Status: 400, Code: "invalid_argument",
		Message: strings.Join(bad, ", ") + ": letters, digits, '-', '_' and '.', at most 63, not a sign at the beginning"}
}
