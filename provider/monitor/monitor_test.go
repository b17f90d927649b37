package monitor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
)

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  monitor.Config
		want []string
	}{
		{"an interval that is a load", monitor.Config{Interval: 9 * time.Second}, []string{"Interval: 9s is less than 10s"}},
		{"a negative interval", monitor.Config{Interval: -time.Minute}, []string{"Interval: -1m0s is less than 10s"}},
		{"a timeout over the interval", monitor.Config{Interval: 20 * time.Second, Timeout: 21 * time.Second}, []string{"Timeout: 21s is more"}},
		{"a negative timeout", monitor.Config{Timeout: -1}, []string{"Timeout: -1ns is negative"}},
		{"no provider under a name", monitor.Config{Providers: providers(nil)}, []string{`Providers: "cloud" is nil`}},
		{"all at once", monitor.Config{Interval: time.Second, Timeout: -1, Providers: providers(nil)}, []string{"Interval", "Timeout", "Providers"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := monitor.New(c.cfg)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q in it", err, want)
				}
			}
		})
	}
	for _, cfg := range []monitor.Config{{}, {Interval: 10 * time.Second}, {Interval: 10 * time.Second, Timeout: 10 * time.Second}} {
		if _, err := monitor.New(cfg); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// There is a round at the start, and one after each interval from there on.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := checks(func(context.Context) []provider.TargetStatus {
			time.Sleep(2 * time.Second)
			return []provider.TargetStatus{up("b"), {Target: "a", Ready: true, Details: map[string]string{"version": "1"}}}
		})
		m := run(t, monitor.Config{Providers: map[string]provider.Provider{"west": c, "east": plain{}}})
		none := []monitor.Result{{Provider: "east"}, {Provider: "west", CanCheck: true}}
		empty := cmp.Transformer("nil", func(all []monitor.Target) string { return fmt.Sprint(all) })
		if diff := cmp.Diff(none, m.Results(), empty); diff != "" {
			t.Errorf("results before the first check ended (-want +got):\n%s", diff)
		}
		pass(2 * time.Second)
		for round := range 3 {
			at := start.Add(time.Duration(round)*time.Minute + 2*time.Second)
			target := monitor.Target{TargetStatus: up("b"), Since: start.Add(2 * time.Second), Checked: at, Took: 2 * time.Second}
			first := target
			first.TargetStatus = provider.TargetStatus{Target: "a", Ready: true, Details: map[string]string{"version": "1"}}
			want := []monitor.Result{
				{Provider: "east", Targets: []monitor.Target{}},
				{Provider: "west", CanCheck: true, Targets: []monitor.Target{first, target}, Checked: at},
			}
			if diff := cmp.Diff(want, m.Results()); diff != "" {
				t.Errorf("results after round %d (-want +got):\n%s", round, diff)
			}
			pass(time.Minute)
		}
	})
}

// What a caller does with its results changes no others, and neither does what a checker does with its verdicts.
func TestResultsAreCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		details := map[string]string{"version": "1"}
		m := run(t, monitor.Config{Providers: providers(says(provider.TargetStatus{Target: "a", Ready: true, Details: details}))})
		got := m.Results()
		got[0].Targets[0].Details["version"] = "2"
		got[0].Targets[0].Ready = false
		details["version"] = "3"
		if now := m.Results()[0].Targets[0]; now.Details["version"] != "1" || !now.Ready {
			t.Errorf("the result became %+v", now)
		}
	})
}

// A check that hangs takes nothing from the others, is not made again while it is out, and is Timeout until it is back.
func TestHungCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, release := hangs()
		hung, quick := says(up("a"), down("b", "Broken")), says(up("q"))
		m := run(t, monitor.Config{Providers: map[string]provider.Provider{"hung": hung, "quick": quick}})
		hung.do(hang)

		pass(time.Minute)
		if got := m.Results()[1]; time.Since(got.Checked) != 0 {
			t.Errorf("the other provider was checked %v ago, want now", time.Since(got.Checked))
		}
		pass(16 * time.Second)
		timedOut := func(when string) {
			t.Helper()
			got := m.Results()[0]
			if len(got.Targets) != 2 {
				t.Fatalf("%s: targets %+v, want the two that are known", when, got.Targets)
			}
			for i, name := range []string{"a", "b"} {
				if v := got.Targets[i]; v.Target != name || v.Ready || v.Reason != provider.Timeout || v.Message == "" {
					t.Errorf("%s: the verdict is %+v, want Timeout of %s", when, v, name)
				}
			}
		}
		timedOut("when its time is over")

		pass(44 * time.Second) // a round begins
		timedOut("while it is out")
		if got := m.Results()[0]; time.Since(got.Checked) != 0 || got.Targets[0].Took != time.Minute {
			t.Errorf("checked %v ago, took %v; want Timeout at once, of a check that takes a minute so far", time.Since(got.Checked), got.Targets[0].Took)
		}
		pass(5 * time.Minute)
		if got := hung.calls(); got != 2 {
			t.Errorf("%d checks began, want none while the second one is out", got)
		}

		release(up("a"), up("b"))
		pass(time.Second)
		timedOut("after it came back late") // what it says is old by now
		hung.say(up("a"), up("b"))
		pass(time.Minute)
		if got := m.Results()[0]; got.Ready() != 2 || hung.calls() != 3 {
			t.Errorf("after %d checks the result is %+v, want both ready", hung.calls(), got)
		}
	})
}

// A provider that never said which targets it has is one target itself.
func TestHungFirstCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, release := hangs()
		c := checks(hang)
		var l log
		m := run(t, monitor.Config{Providers: providers(c), Logger: l.logger()})
		pass(16 * time.Second)
		got := m.Results()[0].Targets
		if len(got) != 1 || got[0].Target != "cloud" || got[0].Reason != provider.Timeout {
			t.Errorf("the targets are %+v, want cloud with Timeout", got)
		}
		c.say(up("a"))
		release()
		pass(time.Minute)
		if got := m.Results()[0].Targets; len(got) != 1 || got[0].Target != "a" {
			t.Errorf("the targets are %+v, want a alone", got)
		}
		want := []string{
			`level=WARN msg="provider target not ready" provider=cloud target=cloud reason=Timeout message="the check did not return within 15s"`,
			`level=INFO msg="provider target gone" provider=cloud target=cloud`,
		}
		if diff := cmp.Diff(want, l.take()); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}

// What a check says when its time is over counts: only some of its targets may have been late.
func TestCheckThatEndsByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := run(t, monitor.Config{Timeout: 5 * time.Second, Providers: providers(checks(func(ctx context.Context) []provider.TargetStatus {
			<-ctx.Done()
			time.Sleep(time.Second / 2)
			return []provider.TargetStatus{up("a"), down("b", provider.Timeout)}
		}))})
		pass(6 * time.Second)
		got := m.Results()[0]
		if got.Ready() != 1 || got.Targets[0].Took != 5500*time.Millisecond || !got.Checked.Equal(start.Add(5500*time.Millisecond)) {
			t.Errorf("the result is %+v, want what the check said, after 5.5s", got)
		}
	})
}

// All providers share the time of a round, and the timeout is never longer than the interval.
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		interval, timeout, want time.Duration
	}{
		{0, 0, 15 * time.Second},
		{10 * time.Second, 0, 10 * time.Second},
		{time.Hour, 0, 15 * time.Second},
		{time.Hour, 40 * time.Second, 40 * time.Second},
	} {
		t.Run(fmt.Sprint(c.interval, " ", c.timeout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var left time.Duration
				run(t, monitor.Config{Interval: c.interval, Timeout: c.timeout, Providers: providers(checks(func(ctx context.Context) []provider.TargetStatus {
					deadline, _ := ctx.Deadline()
					left = time.Until(deadline)
					return []provider.TargetStatus{up("a")}
				}))})
				if left != c.want {
					t.Errorf("a check has %v, want %v", left, c.want)
				}
			})
		})
	}
}

func TestOddAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		first []provider.TargetStatus
		then  func(context.Context) []provider.TargetStatus
		want  []string // target and reason
	}{
		{"twice the same target, the first one ready",
			nil, say(up("a"), down("a", "Broken")), []string{"a Broken"}},
		{"twice the same target, the second one ready",
			nil, say(down("a", "Broken"), up("a")), []string{"a Broken"}},
		{"a target without a name is the provider",
			nil, say(down("", "Broken")), []string{"cloud Broken"}},
		{"not ready for no reason",
			nil, say(down("a", "")), []string{"a NoVerdict"}},
		{"nothing, at first",
			nil, say(), []string{"cloud NoVerdict"}},
		{"nothing, where targets are known",
			[]provider.TargetStatus{up("a"), up("b")}, say(), []string{"a NoVerdict", "b NoVerdict"}},
		{"nothing, when its time is over",
			[]provider.TargetStatus{up("a")}, func(ctx context.Context) []provider.TargetStatus { <-ctx.Done(); return nil }, []string{"a Timeout"}},
		{"a panic",
			[]provider.TargetStatus{up("a")}, func(context.Context) []provider.TargetStatus { panic("hunter2") }, []string{"a CheckPanicked"}},
		{"fewer targets than before",
			[]provider.TargetStatus{up("a"), up("b")}, say(up("b")), []string{"b "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				check := checks(c.then)
				if c.first != nil {
					check.say(c.first...)
				}
				m := run(t, monitor.Config{Providers: providers(check)})
				check.do(c.then)
				pass(time.Minute + 16*time.Second)
				var got []string
				for _, target := range m.Results()[0].Targets {
					got = append(got, target.Target+" "+target.Reason)
					if strings.Contains(target.Message, "hunter2") {
						t.Errorf("the message %q has what the panic said, which nobody has looked at", target.Message)
					}
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("the targets (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func say(verdicts ...provider.TargetStatus) func(context.Context) []provider.TargetStatus {
	return func(context.Context) []provider.TargetStatus { return verdicts }
}

// What a backend writes is shown at everybody's terminal, and is a label of metrics.
func TestTextsAreClipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := strings.Repeat("<p>\xff", 1<<20)
		verdict := provider.TargetStatus{Target: "zone\xffa", Reason: page, Message: page, Details: map[string]string{page: page}}
		long := provider.TargetStatus{Target: page, Ready: true}
		var l log
		m := run(t, monitor.Config{Logger: l.logger(), Providers: providers(says(verdict, long))})
		targets := m.Results()[0].Targets
		if targets[1].Target != "zone?a" {
			t.Errorf("the target is called %q", targets[1].Target)
		}
		for _, target := range targets {
			for _, text := range []string{target.Target, target.Reason, target.Message, fmt.Sprint(target.Details)} {
				if len(text) > 4096 || !utf8.ValidString(text) {
					t.Errorf("a text of %d bytes, valid: %v", len(text), utf8.ValidString(text))
				}
			}
		}
		for _, line := range l.take() {
			if len(line) > 4096 {
				t.Errorf("a line of %d bytes was logged", len(line))
			}
		}
	})
}

// What turned is logged once, and nothing else is.
func TestTransitions(t *testing.T) {
	const (
		broken  = `level=WARN msg="provider target not ready" provider=cloud target=a reason=Broken message="it is down"`
		timeout = `level=WARN msg="provider target not ready" provider=cloud target=a reason=Timeout message="it is down"`
		back    = `level=INFO msg="provider target ready" provider=cloud target=a after=1m0s`
	)
	synctest.Test(t, func(t *testing.T) {
		var l log
		c := says(up("a"))
		m := run(t, monitor.Config{Providers: providers(c), Logger: l.logger()})
		since := time.Now()
		for _, step := range []struct {
			name  string
			say   []provider.TargetStatus
			want  []string
			turns bool
		}{
			{"steady", []provider.TargetStatus{up("a")}, nil, false},
			{"down", []provider.TargetStatus{down("a", "Broken")}, []string{broken}, true},
			{"another message", []provider.TargetStatus{{Target: "a", Reason: "Broken", Message: "still"}}, nil, false},
			{"another reason", []provider.TargetStatus{down("a", "Timeout")}, []string{timeout}, true},
			{"back", []provider.TargetStatus{up("a")}, []string{back}, true},
			{"ready, with a reason", []provider.TargetStatus{{Target: "a", Ready: true, Reason: "Slow"}}, nil, false},
			{"down again", []provider.TargetStatus{down("a", "Broken")}, []string{broken}, true},
			{"others, and one of them down", []provider.TargetStatus{down("a", "Broken"), up("b"), down("c", "New")},
				[]string{`level=WARN msg="provider target not ready" provider=cloud target=c reason=New message="it is down"`}, false},
			{"those that vanish", []provider.TargetStatus{down("a", "Broken")}, []string{`level=INFO msg="provider target gone" provider=cloud target=c`}, false},
		} {
			c.say(step.say...)
			pass(time.Minute)
			if diff := cmp.Diff(step.want, l.take()); diff != "" {
				t.Errorf("%s: the log (-want +got):\n%s", step.name, diff)
			}
			if step.turns {
				since = time.Now()
			}
			if got := m.Results()[0].Targets[0].Since; !got.Equal(since) {
				t.Errorf("%s: it is so since %v, want %v", step.name, got, since)
			}
		}
	})
}

func TestFirstVerdictIsLoggedIfNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		run(t, monitor.Config{Providers: providers(says(up("a"), down("b", "Broken"))), Logger: l.logger()})
		want := []string{`level=WARN msg="provider target not ready" provider=cloud target=b reason=Broken message="it is down"`}
		if diff := cmp.Diff(want, l.take()); diff != "" {
			t.Errorf("the log (-want +got):\n%s", diff)
		}
	})
}

// The stack of a panic is in the log once, however long the checks go on to panic.
func TestPanicIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		run(t, monitor.Config{Logger: l.logger(), Providers: providers(checks(func(context.Context) []provider.TargetStatus { panic("broken") }))})
		got := l.take()
		if len(got) != 2 || !strings.Contains(got[0], "panic=broken") || !strings.Contains(got[0], "doubles_test.go") {
			t.Errorf("the log is %q, want the panic with its stack, and the verdict", got)
		}
		pass(5 * time.Minute)
		if got := l.take(); got != nil {
			t.Errorf("the log goes on with %q", got)
		}
	})
}

// called fails the test when a decorator sees a call.
type called struct{ testing.TB }

func (c called) Called(_, op string, _ provider.Class, _ time.Duration) {
	c.Errorf("a check was counted as a request: %s", op)
}

func TestChecksBypassDecorators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := says(up("a"))
		p := provider.WithTracing(provider.WithRecorder(c, "cloud", called{t}), "cloud", noop.NewTracerProvider())
		m := run(t, monitor.Config{Providers: providers(p)})
		if got := m.Results()[0]; got.Ready() != 1 {
			t.Errorf("the result is %+v, want one ready target", got)
		}
	})
}

// Each round is one span, and what a check does is within it.
func TestSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(spans)
		within := 0
		c := checks(func(ctx context.Context) []provider.TargetStatus {
			if _, ok := trace.SpanFromContext(ctx).(*span); ok {
				within++
			}
			return []provider.TargetStatus{up("a"), down("b", "Broken")}
		})
		run(t, monitor.Config{Providers: map[string]provider.Provider{"x": c, "y": plain{}}, TracerProvider: s})
		pass(time.Minute)
		if len(s.ended) != 2 || within != 2 {
			t.Fatalf("%d spans ended in two rounds, and %d checks had one; want 2 and 2", len(s.ended), within)
		}
		for _, got := range s.ended {
			want := map[string]string{"providerhealth.targets": "2", "providerhealth.targets.ready": "1"}
			if diff := cmp.Diff(want, got.Attributes); got.Name != "providerhealth.check" || diff != "" {
				t.Errorf("the span %s (-want +got):\n%s", got.Name, diff)
			}
		}
	})
}

// A check that the end of the monitor cut off says nothing about the provider, and one that hangs does not keep it.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		hang, release := hangs()
		cut := checks(func(ctx context.Context) []provider.TargetStatus {
			<-ctx.Done()
			return []provider.TargetStatus{down("a", "Cut")}
		})
		m, err := monitor.New(monitor.Config{Providers: map[string]provider.Provider{"cut": cut, "hung": checks(hang)}, Logger: l.logger()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		pass(time.Second)
		if err := m.Run(ctx); err == nil {
			t.Error("a second Run at the same time is no error")
		}
		cancel()
		began := time.Now()
		if err := <-ended; err != nil || time.Since(began) > time.Second {
			t.Errorf("Run returned %v after %v, want nil within a second", err, time.Since(began))
		}
		for _, r := range m.Results() {
			if len(r.Targets) > 0 {
				t.Errorf("%s has the targets %+v, want none", r.Provider, r.Targets)
			}
		}
		if got := l.take(); got != nil {
			t.Errorf("the log is %q, want nothing", got)
		}
		release()
	})
}
