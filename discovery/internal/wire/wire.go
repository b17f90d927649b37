// Package wire is the language of the HTTP API: what its server and its Go client say to each other, as JSON.
package wire

import (
	"encoding/json"
	"errors"
	"math"
	"time"
)

// Proxy is a record as the API shows it. It has no field for a credential, for user data or for annotations, which may
// quote either.
type Proxy struct {
	Namespace          string `json:"namespace"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Generation         int64  `json:"generation"`
	ObservedGeneration int64  `json:"observedGeneration"`
	// Mode is Managed or External.
	Mode string `json:"mode"`
	// Phase is the status in a word. Only proxies that are Ready and not being deleted are leased.
	Phase string `json:"phase"`
	// Deleting says that the record goes as soon as its instance is gone.
	Deleting bool `json:"deleting"`
	// Conditions say why the proxy is in its phase. There is at most one of each type.
	Conditions []Condition `json:"conditions"`
	// Provider has the instance, or is to make it. None for an External proxy.
	Provider string `json:"provider,omitempty"`
	// DeclaredProvider is to have the instance, where that is not the one that has it.
	DeclaredProvider string `json:"declaredProvider,omitempty"`
	// InstanceID is the provider's name for the instance, known before it is made.
	InstanceID string `json:"instanceID,omitempty"`
	// Host and Port are where the proxy listens, once that is known.
	Host string `json:"host,omitempty"`
	Port int32  `json:"port,omitempty"`
	// LatencyMillis and LastHealthCheckTime are of the last probe that was news.
	LatencyMillis       int64             `json:"latencyMillis,omitempty"`
	LastHealthCheckTime time.Time         `json:"lastHealthCheckTime,omitzero"`
	Attributes          map[string]string `json:"attributes"`
	MaxLeases           int32             `json:"maxLeases"`
	// ActiveLeases is left out by a replica that does not lead: it does not know.
	ActiveLeases *int `json:"activeLeases,omitempty"`
}

// Condition is one aspect of a proxy.
type Condition struct {
	// Type is Provisioned, Healthy or Resolved.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status string `json:"status"`
	// Reason is a stable word, Message is for people.
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
}

// ProxyList is one page of the proxies that match.
type ProxyList struct {
	Proxies []Proxy `json:"proxies"`
	// Count is the number of all that match, on this page and on others.
	Count int `json:"count"`
	// Continue asks for the next page. Empty on the last.
	Continue string `json:"continue,omitempty"`
}

// LeaseRequest asks for a lease.
type LeaseRequest struct {
	Selector    Selector `json:"selector,omitempty"`
	Target      string   `json:"target,omitempty"`
	TTLSeconds  int64    `json:"ttlSeconds,omitempty"`
	RequestID   string   `json:"requestID,omitempty"`
	Session     string   `json:"session,omitempty"`
	Count       int      `json:"count,omitempty"`
	WaitSeconds int64    `json:"waitSeconds,omitempty"`
}

var errMalformed = errors.New(`selector must be an object whose values are strings, such as {"region": "eu"}`)

// Selector lists the attributes that a proxy must have.
type Selector map[string]string

// UnmarshalJSON reads an object whose values are strings. A null value is refused: it must not turn into the empty string.
// So is a key that is there twice: only one of its values would count.
func (s *Selector) UnmarshalJSON(b []byte) error {
	var values map[string]*string
	if err := json.Unmarshal(b, &values); err != nil {
		return errMalformed
	}
	if len(Names(b)) > len(values) {
		return errors.New("selector must have each attribute once")
	}
	selector := make(Selector, len(values))
	for k, v := range values {
		if v == nil {
			return errMalformed
		}
		selector[k] = *v
	}
	*s = selector
	return nil
}

// Lease is a lease that was granted or renewed.
type Lease struct {
	LeaseID string   `json:"leaseID"`
	Proxy   Endpoint `json:"proxy"`
	Target  string   `json:"target,omitempty"`
	// ExpiresAt is in UTC and exact to the millisecond.
	ExpiresAt  time.Time `json:"expiresAt"`
	TTLSeconds int64     `json:"ttlSeconds"`
}

// Endpoint is the proxy of a lease.
type Endpoint struct {
	// URL holds the credentials, percent-encoded. It is the only place of the API that does.
	URL        string            `json:"url"`
	Host       string            `json:"host"`
	Port       int               `json:"port"`
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Attributes map[string]string `json:"attributes"`
}

// Grant is the first of the leases that a request got, and all of them where it asked for several.
type Grant struct {
	Lease
	Moved  bool    `json:"moved"`
	Leases []Lease `json:"leases,omitempty"`
}

// RenewRequest asks for more time.
type RenewRequest struct {
	TTLSeconds int64 `json:"ttlSeconds,omitempty"`
}

// ReportRequest tells what came back from a target.
type ReportRequest struct {
	Result string `json:"result"`
	Target string `json:"target,omitempty"`
}

// Seconds returns d in whole seconds, rounded away from zero: nobody gets less time than asked for, and a negative
// duration stays negative.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	switch rest := d % time.Second; {
	case rest > 0:
		s++
	case rest < 0:
		s--
	}
	return s
}

// Duration returns s seconds, or the longest duration there is where s is more than that.
func Duration(s int64) time.Duration {
	const longest = int64(math.MaxInt64 / time.Second)
	return time.Duration(min(max(s, -longest), longest)) * time.Second
}
