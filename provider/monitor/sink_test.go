package monitor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
)

func TestSinkIsToldOfEachProviderOnceARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(sink)
		m := run(t, monitor.Config{Sink: s, Providers: map[string]provider.Provider{"b": says(up("x")), "a": plain{}, "c": says(down("y", "Broken"))}})
		for round := range 3 {
			if diff := cmp.Diff(m.Results(), s.take()); diff != "" {
				t.Errorf("what the sink was told in round %d (-results +told):\n%s", round, diff)
			}
			pass(time.Minute)
		}
	})
}

// A slow sink delays no check. It is told of the newest round when it is done, never of two at once.
func TestSlowSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		over := make(chan struct{})
		c := says(up("x"))
		s := &sink{report: func(ctx context.Context, _ monitor.Result) error {
			deadline, ok := ctx.Deadline()
			if left := time.Until(deadline); !ok || left != 15*time.Second {
				t.Errorf("a report has %v, want 15s", left)
			}
			select {
			case <-time.After(155 * time.Second): // it does not even heed that
			case <-over:
			}
			return nil
		}}
		run(t, monitor.Config{Sink: s, Providers: providers(c)})
		pass(6*time.Minute + time.Second)
		if got := c.calls(); got != 7 {
			t.Errorf("%d rounds in six minutes, want 7", got)
		}
		var got []time.Duration
		for _, r := range s.take() {
			got = append(got, r.Checked.Sub(start))
		}
		if diff := cmp.Diff([]time.Duration{0, 2 * time.Minute, 5 * time.Minute}, got); diff != "" {
			t.Errorf("the rounds that the sink was told of (-want +got):\n%s", diff)
		}
		close(over)
	})
}

func TestSinkThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		s := &sink{report: func(_ context.Context, r monitor.Result) error {
			if r.Provider == "a" {
				return errSink
			}
			return nil
		}}
		run(t, monitor.Config{Sink: s, Logger: l.logger(), Providers: map[string]provider.Provider{"a": plain{}, "b": plain{}}})
		if got := len(s.take()); got != 2 {
			t.Errorf("the sink was told %d results, want both", got)
		}
		want := []string{`level=WARN msg="result of provider checks not reported" provider=a err="no room"`}
		if diff := cmp.Diff(want, l.take()); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}
