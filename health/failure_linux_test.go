package health

import (
	"net/http"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestProxyOutOfReach makes sure that a proxy to which this host has no address to connect from, as to an IPv6 one where
// there is no IPv6, is judged like any other that cannot be reached: nothing that is freed here would ever let a probe pass.
func TestProxyOutOfReach(t *testing.T) {
	if os.Geteuid() != 0 {
		unavailable(t, "a network without addresses takes root")
	}
	got := make(chan Result, 1)
	go func() {
		defer close(got)
		runtime.LockOSThread() // for ever: the thread ends with the goroutine, and the network with the thread
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			t.Logf("no network without addresses: %v", err)
			return
		}
		got <- HTTPProber{}.Probe(t.Context(), Target{
			Key: "far", Scheme: schemeHTTP, Host: "2001:db8::1", Port: 3128,
			URL: "http://target.example/", ExpectedStatus: []int{http.StatusOK},
			Interval: time.Minute, Timeout: time.Minute, SuccessThreshold: 1, FailureThreshold: 1,
		})
	}()
	r, ok := <-got
	if !ok {
		unavailable(t, "this process may not make a network without addresses")
	}
	if r.OK || r.Party != PartyDial {
		t.Errorf("%+v, want party %q", r, PartyDial)
	}
}

// unavailable skips a test for what this machine lacks. Where all has to be there it fails.
func unavailable(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
