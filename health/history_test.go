package health_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/health"
)

// recent returns what the engine remembers of the first incarnation of key, in short.
func recent(e *health.Engine) (results []string) {
	for _, r := range e.Recent(key, "first") {
		results = append(results, fmt.Sprintf("%v %v %s", r.At.Sub(bubble), r.OK, r.Party))
	}
	return results
}

// bubble is when a bubble begins.
var bubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TestRecent: the last five results are remembered, the newest first, until the proxy is another one.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		e := run(t, health.Config{Prober: f})
		set(t, e, target(key))
		want := func(what string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, recent(e)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		want("before the first probe")
		answers := []health.Result{ok(0), bad(health.PartyDial), bad(health.PartyLocal), ok(0), bad(health.PartyTLS), bad(health.PartyStatus), ok(0), bad(health.PartyTimeout)}
		for i, r := range answers {
			f.answer(r)
			e.Hurry(key)
			tick()
			if i == 2 {
				want("three probes", "3s false local", "2s false dial", "0s true ")
			}
			if i == 4 {
				want("five", "5s false tls", "4s true ", "3s false local", "2s false dial", "0s true ")
			}
		}
		want("eight", "8s false timeout", "7s true ", "6s false status", "5s false tls", "4s true ")
		if got := e.Recent(key, "second"); got != nil {
			t.Errorf("of an incarnation that it does not know: %v", got)
		}
		if got := e.Recent("default/nobody", "first"); got != nil {
			t.Errorf("of a key that it does not know: %v", got)
		}

		e.Recent(key, "first")[0] = health.Result{} // belongs to its caller
		changed := target(key)
		changed.Interval = 2 * time.Hour
		set(t, e, changed)
		want("other parameters", "8s false timeout", "7s true ", "6s false status", "5s false tls", "4s true ")
		successor := target(key)
		successor.Incarnation = "second"
		set(t, e, successor)
		want("a successor")
		tick()
		if got := e.Recent(key, "second"); len(got) != 1 {
			t.Errorf("the successor's: %v", got)
		}
		e.Remove(key)
		if got := e.Recent(key, "second"); got != nil {
			t.Errorf("of what was removed: %v", got)
		}
	})
}
