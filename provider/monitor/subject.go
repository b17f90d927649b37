package monitor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// The reasons that the monitor gives itself, beside [provider.Timeout].
const (
	panicked  = "CheckPanicked" // the check panicked
	noVerdict = "NoVerdict"     // the check returned no target, or gave no reason why one is not ready
)

// grace is how long a check may take to return after its context has ended.
const grace = time.Second

// subject is one provider and what is known of it.
type subject struct {
	checker provider.Checker // nil: it has none
	log     *slog.Logger

	mu     sync.Mutex
	result Result
	out    time.Time // when the check began that has not returned; zero when none is out
}

func newSubject(name string, p provider.Provider, log *slog.Logger) *subject {
	checker, ok := provider.As[provider.Checker](p)
	return &subject{checker: checker, log: log.With("provider", name), result: Result{Provider: name, CanCheck: ok}}
}

// last returns a copy of what is known.
func (s *subject) last() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result.clone()
}

// check makes one check and keeps its verdicts. Those of a check that was cut off by the end of ctx mean nothing.
func (s *subject) check(ctx context.Context, timeout time.Duration) {
	began, verdicts := s.ask(ctx, timeout)
	if ctx.Err() == nil {
		s.keep(ctx, began, verdicts)
	}
}

// ask returns the verdicts of a check and when that began. While an earlier one has not returned, no other is made.
func (s *subject) ask(ctx context.Context, timeout time.Duration) (time.Time, []provider.TargetStatus) {
	began, free := s.begin()
	if !free {
		return began, s.all(provider.Timeout, fmt.Sprintf("the check that began at %s has not returned", began.UTC().Format(time.RFC3339)))
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer := make(chan []provider.TargetStatus, 1)
	go func() {
		var verdicts []provider.TargetStatus
		defer func() {
			s.end()
			answer <- verdicts
		}()
		verdicts = s.call(limited)
	}()
	select {
	case verdicts := <-answer:
		return began, verdicts
	case <-limited.Done():
	}
	select {
	case verdicts := <-answer:
		return began, verdicts
	case <-time.After(grace):
		return began, s.all(provider.Timeout, fmt.Sprintf("the check did not return within %v", timeout))
	}
}

// begin notes that a check goes out, or says since when one is out.
func (s *subject) begin() (began time.Time, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.out.IsZero() {
		return s.out, false
	}
	s.out = time.Now()
	return s.out, true
}

func (s *subject) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = time.Time{}
}

// call calls the checker. A check that panics is a verdict: what only looks at the fleet must not end it. The log has the
// value and the stack, once for as long as it goes on; the verdict, which others see, has neither.
func (s *subject) call(ctx context.Context) (verdicts []provider.TargetStatus) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if !s.has(panicked) {
			s.log.ErrorContext(ctx, "check of a provider panicked", "panic", provider.Clip(fmt.Sprint(v)), "stack", string(debug.Stack()))
		}
		verdicts = s.all(panicked, "the check panicked; the log says where")
	}()
	verdicts = s.checker.Check(ctx)
	switch {
	case len(verdicts) > 0:
		return verdicts
	case ctx.Err() != nil:
		return s.all(provider.Timeout, "the check returned no verdict before its time was over")
	}
	return s.all(noVerdict, "the check returned no verdict")
}

// has says whether some target has that reason now.
func (s *subject) has(reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.result.Targets, func(t Target) bool { return t.Reason == reason })
}

// all returns one verdict for all known targets, or for one that is called as the provider where none is known.
func (s *subject) all(reason, message string) []provider.TargetStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.result.Targets) == 0 {
		return []provider.TargetStatus{{Target: s.result.Provider, Reason: reason, Message: message}}
	}
	var verdicts []provider.TargetStatus
	for _, t := range s.result.Targets {
		verdicts = append(verdicts, provider.TargetStatus{Target: t.Target, Reason: reason, Message: message})
	}
	return verdicts
}

// keep replaces what is known, and logs what turned.
func (s *subject) keep(ctx context.Context, began time.Time, verdicts []provider.TargetStatus) {
	now := time.Now()
	s.mu.Lock()
	before := map[string]Target{}
	for _, t := range s.result.Targets {
		before[t.Target] = t
	}
	var targets []Target
	for _, v := range s.distinct(verdicts) {
		t := Target{TargetStatus: v, Since: now, Checked: now, Took: now.Sub(began)}
		if old, known := before[v.Target]; known && !turned(old.TargetStatus, v) {
			t.Since = old.Since
		}
		targets = append(targets, t)
	}
	s.result.Targets, s.result.Checked = targets, now
	s.mu.Unlock()
	s.logTurned(ctx, before, targets)
}

// distinct returns the verdicts by name, one for each: a target that is called twice is as bad as the worse of the two.
func (s *subject) distinct(verdicts []provider.TargetStatus) []provider.TargetStatus {
	byName := map[string]provider.TargetStatus{}
	for _, v := range verdicts {
		v = clipped(v)
		v.Target = cmp.Or(v.Target, s.result.Provider)
		if !v.Ready {
			v.Reason = cmp.Or(v.Reason, noVerdict)
		}
		if other, twice := byName[v.Target]; !twice || other.Ready {
			byName[v.Target] = v
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b provider.TargetStatus) int { return cmp.Compare(a.Target, b.Target) })
}

// clipped returns a verdict that can go anywhere: backends wrote its texts, and metrics take no label that is not UTF-8.
func clipped(v provider.TargetStatus) provider.TargetStatus {
	v.Target, v.Reason, v.Message = provider.Clip(v.Target), provider.Clip(v.Reason), provider.Clip(v.Message)
	if v.Details != nil {
		details := make(map[string]string, len(v.Details))
		for name, value := range v.Details {
			details[provider.Clip(name)] = provider.Clip(value)
		}
		v.Details = details
	}
	return v
}

// turned says whether a verdict is news after another one.
func turned(old, v provider.TargetStatus) bool {
	return old.Ready != v.Ready || !v.Ready && old.Reason != v.Reason
}

// logTurned tells operators what turned: a target that was never seen counts as one that was ready.
func (s *subject) logTurned(ctx context.Context, before map[string]Target, now []Target) {
	for _, t := range now {
		old, known := before[t.Target]
		delete(before, t.Target)
		switch {
		case known && !turned(old.TargetStatus, t.TargetStatus):
		case !t.Ready:
			s.log.WarnContext(ctx, "provider target not ready", "target", t.Target, "reason", t.Reason, "message", t.Message)
		case known:
			s.log.InfoContext(ctx, "provider target ready", "target", t.Target, "after", t.Since.Sub(old.Since).String())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !before[name].Ready {
			s.log.InfoContext(ctx, "provider target gone", "target", name)
		}
	}
}
