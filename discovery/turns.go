package discovery

import (
	"net/http"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

// The turns of a handler.
const (
	// listTurns is how many requests read all proxies at once: of 10,000, each takes 14 MB meanwhile.
	listTurns = 4
	// planTurns is how many plans are made at once, for which all providers are asked for all that they have.
	planTurns = 1
	// turnWait is how long a request waits for its turn.
	turnWait = 10 * time.Second
	// busyRetry is how long a caller waits who had none.
	busyRetry = 5 * time.Second
)

// turns are places for requests that take much of the process or ask much of others. There are a few, and who finds none
// waits for one.
type turns chan struct{}

// inTurn does some work when a place is free. The place is given back before anything is sent to the caller, for he may read
// slowly. The error is that of the work, or of a request that had no turn.
func inTurn[T any](t turns, w http.ResponseWriter, r *http.Request, work func() (T, error)) (T, error) {
	var none T
	patience := time.NewTimer(turnWait)
	defer patience.Stop()
	select {
	case t <- struct{}{}:
		defer func() { <-t }()
		return work()
	case <-r.Context().Done():
		return none, r.Context().Err()
	case <-patience.C:
		setRetryAfter(w, busyRetry)
		return none, &problem{http.StatusServiceUnavailable, wire.Busy, "too many others ask for the same at once"}
	}
}
