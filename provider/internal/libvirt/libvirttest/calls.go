package libvirttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/secret"
)

// Run runs a provider until the test ends.
func Run(t testing.TB, p provider.Provider) {
	t.Helper()
	runner, ok := provider.As[provider.Runner](p)
	if !ok {
		t.Fatal("the provider is no Runner")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Request asks for a machine of a fleet that becomes a proxy.
func Request(fleet, uid string) provider.Request {
	return Marked(provider.Request{Port: 3128, CloudInit: secret.New(cloudInit)}, fleet, uid)
}

// Marked is a request with whose it is.
func Marked(r provider.Request, fleet, uid string) provider.Request {
	r.Name, r.Marks, r.Token = provider.Name(fleet, uid), provider.Marks{Fleet: fleet, UID: uid, Hash: "v1-1"}, uid
	return r
}

// RefOf names an instance.
func RefOf(in provider.Instance) provider.Ref {
	return provider.Ref{ID: in.ID, UID: in.Marks.UID, Incarnation: in.Incarnation}
}

// Made creates an instance, and waits until its image is there.
func Made(t testing.TB, p provider.Provider, r provider.Request) provider.Instance {
	t.Helper()
	var in provider.Instance
	Await(t, 5*time.Minute, "the instance is made", func() (_ bool, err error) {
		in, err = p.Create(t.Context(), r)
		return err == nil && in.Incarnation != "", fmt.Errorf("%s %s: %w", in.Reason, in.Message, err)
	})
	return in
}

// Await calls until it returns true, or ends the test with the error.
func Await(t testing.TB, atMost time.Duration, what string, done func() (bool, error)) {
	t.Helper()
	deadline := time.After(atMost)
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	for {
		ok, err := done()
		if ok {
			return
		}
		select {
		case <-ticks.C:
		case <-deadline:
			t.Fatalf("after %v it was not true that %s: %v", atMost, what, err)
		}
	}
}
