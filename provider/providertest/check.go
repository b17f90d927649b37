package providertest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
)

var (
	camelCase      = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	lowerCamelCase = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)
)

// checker returns the checks of the provider that is open, or skips the case.
func (b *bench) checker() provider.Checker {
	b.Helper()
	c, ok := provider.As[provider.Checker](b.provider)
	if !ok {
		b.Skipf("the provider has no Check")
	}
	return c
}

// check calls Check and returns the verdicts by target.
func (b *bench) check(ctx context.Context) map[string]provider.TargetStatus {
	b.Helper()
	checker := b.checker()
	answer := make(chan []provider.TargetStatus, 1)
	go func() { answer <- checker.Check(ctx) }()
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(promptly, func() { close(late) }) })
	defer stop()
	select {
	case verdicts := <-answer:
		return b.judgeVerdicts(verdicts)
	case <-late:
		b.Errorf("Check was still under way %v after its context had ended", promptly)
		return nil
	}
}

// checkNow calls Check with time enough.
func (b *bench) checkNow() map[string]provider.TargetStatus {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), callTimeout)
	defer cancel()
	return b.check(ctx)
}

// judgeVerdicts looks at the form of what a Check returned.
func (b *bench) judgeVerdicts(verdicts []provider.TargetStatus) map[string]provider.TargetStatus {
	b.Helper()
	byTarget := map[string]provider.TargetStatus{}
	for _, v := range verdicts {
		b.noSecret("a verdict of Check", v)
		if _, twice := byTarget[v.Target]; twice || v.Target == "" {
			b.Errorf("Check has a target without a name, or twice: %q", v.Target)
		}
		if (!v.Ready || v.Reason != "") && !camelCase.MatchString(v.Reason) {
			b.Errorf("the reason of the target %s is %q, want a CamelCase word", v.Target, v.Reason)
		}
		for name := range v.Details {
			if !lowerCamelCase.MatchString(name) {
				b.Errorf("the target %s has a detail %q, want a lowerCamel word", v.Target, name)
			}
		}
		byTarget[v.Target] = v
	}
	if len(verdicts) == 0 {
		b.Errorf("Check returned no verdict")
	}
	return byTarget
}

// names returns the targets of verdicts, in order.
func names(verdicts map[string]provider.TargetStatus) []string {
	return slices.Sorted(maps.Keys(verdicts))
}

// wantTargets says that a check has the same targets as one before.
func (b *bench) wantTargets(before, now map[string]provider.TargetStatus) {
	b.Helper()
	if diff := cmp.Diff(names(before), names(now)); diff != "" {
		b.Errorf("the targets are others than before (-before +now):\n%s", diff)
	}
}

// wantReady says that all targets are ready.
func (b *bench) wantReady(verdicts map[string]provider.TargetStatus) {
	b.Helper()
	for _, name := range names(verdicts) {
		if v := verdicts[name]; !v.Ready {
			b.Errorf("the target %s of a healthy backend is not ready: %s, %s", name, v.Reason, v.Message)
		}
	}
}

// notReady counts the targets that are not ready.
func notReady(verdicts map[string]provider.TargetStatus) int {
	n := 0
	for _, v := range verdicts {
		if !v.Ready {
			n++
		}
	}
	return n
}

func checkCase(b *bench) {
	first := b.checkNow()
	b.wantReady(first)
	in := b.mustCreate(b.request())
	second := b.checkNow()
	b.wantReady(second)
	b.wantTargets(first, second)
	b.mustDelete(refOf(in))
	b.wantTargets(first, b.checkNow())
	b.open(ours)
	third := b.checkNow()
	b.wantReady(third)
	b.wantTargets(first, third)
}

func checkChangesNothing(b *bench) {
	b.checker()
	in, other := b.mustCreate(b.request()), b.mustCreate(b.request())
	seen := func() map[string]string {
		all := map[string]string{}
		for id, in := range b.mustList() {
			all[id] = fmt.Sprintf("%s %s at %s:%d", in.Incarnation, in.State, in.Host, in.Port)
		}
		return all
	}
	before := seen()
	for range 3 {
		b.checkNow()
	}
	if diff := cmp.Diff(before, seen()); diff != "" {
		b.Errorf("checks changed what there is (-before +after):\n%s", diff)
	}
	b.stays(in)
	b.stays(other)
}

func checkAtOnce(b *bench) {
	const callers = 4
	b.checker()
	var requests [callers]provider.Request
	for i := range requests {
		requests[i] = b.request()
		b.planned(requests[i])
	}
	var group sync.WaitGroup
	for _, r := range requests {
		group.Go(func() { b.wantReady(b.checkNow()) })
		group.Go(func() {
			in, err := b.create(r)
			if err == nil {
				err = b.delete(anyOf(in))
			}
			if err != nil {
				b.Errorf("a call at the same time as a check: %v", err)
			}
		})
	}
	group.Wait()
}

func checkFails(b *bench) {
	b.mustCreate(b.request())
	before := b.checkNow()
	b.inject(CheckFails)
	now := b.checkNow()
	b.wantTargets(before, now)
	if notReady(now) == 0 {
		b.Errorf("all targets of a backend in trouble are ready")
	}
	if again := b.checkNow(); !cmp.Equal(reasons(now), reasons(again)) {
		b.Errorf("the reasons of the same trouble went from %v to %v", reasons(now), reasons(again))
	}
}

// reasons returns the reason of each target.
func reasons(verdicts map[string]provider.TargetStatus) map[string]string {
	all := map[string]string{}
	for name, v := range verdicts {
		all[name] = v.Reason
	}
	return all
}

func checkEnds(b *bench) {
	before := b.checkNow()
	ended, cancel := context.WithCancel(b.Context())
	cancel()
	b.wantTargets(before, b.check(ended))
	if _, ok := provider.As[provider.Runner](b.provider); !ok {
		return
	}
	checkBriefly := func(when string) {
		b.Logf("Check %s", when)
		ctx, cancel := context.WithTimeout(b.Context(), 2*pollEvery)
		defer cancel()
		b.wantTargets(before, b.check(ctx))
	}
	b.close()
	checkBriefly("after Run")
	b.openOnly(ours)
	checkBriefly("before Run")
}

func checkHangs(b *bench) {
	before := b.checkNow()
	b.inject(Hangs)
	ctx, cancel := context.WithTimeout(b.Context(), 10*pollEvery)
	defer cancel()
	now := b.check(ctx)
	b.wantTargets(before, now)
	if notReady(now) == 0 {
		b.Errorf("all targets of a backend that answers nothing are ready")
	}
	for _, name := range names(now) {
		if v := now[name]; !v.Ready && v.Reason != provider.Timeout {
			b.Errorf("the target %s did not answer in time, and its reason is %s, want %s", name, v.Reason, provider.Timeout)
		}
	}
}
