package wire

// Error is the body of every answer that is an error.
type Error struct {
	// Code is a stable word for programs.
	Code string `json:"error"`
	// Message is for people.
	Message string `json:"message"`
}

// NoMatch is the body of the answer to a request that found no proxy. Considered is the sum of the other numbers.
type NoMatch struct {
	Error
	Considered int `json:"considered"`
	AtCapacity int `json:"atCapacity"`
	InCooldown int `json:"inCooldown"`
	Unhealthy  int `json:"unhealthy"`
	Eligible   int `json:"eligible"`
	// RetryAfterSeconds is when the next of them comes free by itself at the earliest, as in Retry-After. 0 is not known.
	RetryAfterSeconds int64 `json:"retryAfterSeconds,omitempty"`
}

// The codes of errors.
const (
	BodyTooLarge     = "body_too_large"
	Busy             = "busy"
	CrossOrigin      = "cross_origin"
	HostNotAllowed   = "host_not_allowed"
	Internal         = "internal"
	InvalidRequest   = "invalid_request"
	InvalidResult    = "invalid_result"
	InvalidTTL       = "invalid_ttl"
	MethodNotAllowed = "method_not_allowed"
	NoMatchFound     = "no_match"
	NotFound         = "not_found"
	NotReady         = "not_ready"
	NotSupported     = "not_supported"
	ProxyGone        = "proxy_gone"
	RequestMismatch  = "request_mismatch"
	Timeout          = "timeout"
	Unauthorized     = "unauthorized"
	UnknownLease     = "unknown_lease"
	UnknownProvider  = "unknown_provider"
	UnknownProxy     = "unknown_proxy"
)
