package discovery_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/lease"
)

// Who waits for a proxy when the process ends is told to ask again, and not left with a connection that breaks.
func TestWaitEndsWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := lease.NewMemory(lease.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ending := make(chan struct{})
		c := config(t)
		c.Leases, c.Ending = store, ending
		time.AfterFunc(time.Second, func() { close(ending) })
		start := time.Now()
		got := serve(t, handler(t, c), request(t, "POST /v1/leases", `{"waitSeconds":60}`))
		want := failure("not_ready", "this process is ending, and has stopped what it was asked for")
		if diff := cmp.Diff(want, plain(t, got.Body.String())); got.Code != 503 || got.Header().Get("Retry-After") != "5" || diff != "" {
			t.Errorf("status %d, Retry-After %s (-want +got):\n%s", got.Code, got.Header().Get("Retry-After"), diff)
		}
		if time.Since(start) != time.Second {
			t.Errorf("it ended after %v", time.Since(start))
		}
	})
}
