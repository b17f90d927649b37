package discovery

import "time"

// Recorder hears of every request, so that somebody may count it. What leases are granted and refused is told to the
// recorder of the lease store.
type Recorder interface {
	// Requested is called when a request was answered, by many goroutines at once. The route is a pattern such as
	// "GET /v1/proxies", or "unmatched" for what is no route of the API: there are few of them, whatever strangers ask for.
	Requested(route string, code int, took time.Duration)
}

// ignore is the recorder of a handler that has none.
type ignore struct{}

func (ignore) Requested(string, int, time.Duration) {}
