package fleet

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// The reasons of the conditions. They are stable: people and scripts match on them.
const (
	ReasonCreated          = "Created"          // the instance runs
	ReasonExternalEndpoint = "ExternalEndpoint" // there is nothing to make
	ReasonProvisioning     = "Provisioning"     // the instance is on its way
	ReasonReplacing        = "Replacing"        // the spec wants another instance
	ReasonDeleting         = "Deleting"         // the record is being deleted
	ReasonTerminating      = "Terminating"      // an instance of that name is still going
	ReasonStopped          = "Stopped"          // the instance stopped, and is removed
	ReasonInstanceGone     = "InstanceGone"     // the instance vanished
	ReasonQuotaExceeded    = "QuotaExceeded"    // there is no room at the provider
	ReasonPermanentError   = "PermanentError"   // it cannot be made as it is declared
	ReasonProviderError    = "ProviderError"    // the provider failed, and will be asked again
	ReasonUnknownProvider  = "UnknownProvider"  // no provider of that name is configured
	ReasonProbeSucceeded   = "ProbeSucceeded"   // probes succeed
	ReasonProbeFailed      = "ProbeFailed"      // probes fail; the message names who failed
	ReasonResolved         = "Resolved"         // all references were found
)

// phase sums a status up.
func phase(deleting bool, s proxy.Status) proxy.Phase {
	provisioned, _ := s.Condition(proxy.Provisioned)
	switch {
	case deleting:
		return proxy.Deleting
	case provisioned.Status == proxy.True:
		return healthPhase(s)
	case provisioned.Reason == ReasonPermanentError, provisioned.Reason == ReasonUnknownProvider:
		return proxy.Failed
	case provisioned.Reason == ReasonReplacing:
		return proxy.Replacing
	case s.Instance.ID == "":
		return proxy.Pending
	}
	return proxy.Provisioning
}

func healthPhase(s proxy.Status) proxy.Phase {
	switch healthy, _ := s.Condition(proxy.Healthy); healthy.Status {
	case proxy.True:
		return proxy.Ready
	case proxy.False:
		return proxy.Unhealthy
	}
	return proxy.Probing
}

// set puts a condition into the status.
func (p *pass) set(t proxy.ConditionType, status proxy.ConditionStatus, reason, message string) {
	p.s.SetCondition(proxy.Condition{Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: proxy.At(p.now)})
}

// lacks says that the instance is not there as the spec wants it.
func (p *pass) lacks(reason, message string) {
	p.set(proxy.Provisioned, proxy.False, reason, message)
}

// provisioned is that condition as it is to become.
func (p *pass) provisioned() proxy.Condition {
	c, _ := p.s.Condition(proxy.Provisioned)
	return c
}

// complain logs what keeps a proxy from being as it is declared, when it is news. The errors of passes are logged by who
// makes them.
func (r *Reconciler) complain(ctx context.Context, k proxy.Key, before, now proxy.Condition) {
	wrong := now.Message != "" && !strings.HasPrefix(now.Message, waitsForTurn)
	if now.Status != proxy.True {
		wrong = now.Reason == ReasonPermanentError || now.Reason == ReasonUnknownProvider || now.Reason == ReasonQuotaExceeded
	}
	if wrong && (now.Reason != before.Reason || gist(now.Message) != gist(before.Message)) {
		r.Logger.WarnContext(ctx, "proxy is not as declared", "proxy", k, "provisioned", string(now.Status), "reason", now.Reason,
			"message", now.Message)
	}
}

// applyHealth takes over the verdict on the incarnation that the status names. What is not probed, and what has no verdict
// yet, is not said to be well: an engine that can go on from the status's own verdict has it already.
func (p *pass) applyHealth() {
	if p.Health == nil || p.s.Instance.Incarnation == "" {
		return
	}
	snapshot, ok := p.Health.Snapshot(p.p.Key.String(), p.s.Instance.Incarnation)
	switch {
	case !ok || snapshot.Verdict == health.Unknown:
		p.s.RemoveCondition(proxy.Healthy)
		p.s.LatencyMillis = 0
	case snapshot.Verdict == health.Healthy:
		p.set(proxy.Healthy, proxy.True, ReasonProbeSucceeded, "")
		p.s.LatencyMillis = snapshot.Reported.Latency.Milliseconds()
	default:
		p.set(proxy.Healthy, proxy.False, ReasonProbeFailed, message(string(snapshot.Reported.Party), snapshot.Reported.Message))
	}
	if ok && !snapshot.Reported.At.IsZero() {
		p.s.LastHealthCheckTime = proxy.At(snapshot.Reported.At)
	}
}

// meet takes down the incarnation that is there.
func (p *pass) meet(incarnation string) {
	if p.s.Instance.Incarnation != incarnation {
		p.leave()
		p.s.Instance.Incarnation = incarnation
	}
}

// leave forgets where the instance was and how well it was: a successor inherits neither.
func (p *pass) leave() {
	p.s.Instance.Host, p.s.Instance.Port = "", 0
	p.s.RemoveCondition(proxy.Healthy)
	p.s.LatencyMillis = 0
}

// fail reports an error of Plan, Get or Delete. What may work soon comes back with the queue's backoff; what the caller
// gave up is no failure.
func (p *pass) fail(ctx context.Context, err error) (Result, error) {
	if givenUp(ctx, err) {
		return Result{}, err
	}
	p.report(err)
	switch provider.ClassOf(err) {
	case provider.ErrQuotaExceeded:
		return Result{After: max(p.Intervals.QuotaRetry, retryAfter(err))}, nil
	case provider.ErrPermanent:
		return Result{After: max(p.jittered(), retryAfter(err))}, nil
	}
	if wait := retryAfter(err); wait > 0 {
		return Result{After: wait}, nil
	}
	return Result{}, err
}

// givenUp says whether a call failed because its caller did not want it any more, which says nothing about the provider.
func givenUp(ctx context.Context, err error) bool {
	return ctx.Err() != nil || provider.ClassOf(err) == provider.ErrCanceled
}

// report says in the condition what the provider's error means. An instance that is known to run goes on: that its provider
// cannot be asked just now says nothing about it.
func (p *pass) report(err error) {
	text := describe(err)
	if c := p.provisioned(); c.Status == proxy.True {
		p.set(proxy.Provisioned, proxy.True, c.Reason, text)
		p.applyHealth()
		return
	}
	switch provider.ClassOf(err) {
	case provider.ErrQuotaExceeded:
		p.lacks(ReasonQuotaExceeded, text)
	case provider.ErrPermanent:
		p.lacks(ReasonPermanentError, text)
	default:
		p.lacks(ReasonProviderError, text)
	}
}

// describe opens the message with the provider's own reason.
func describe(err error) string {
	if e, ok := errors.AsType[*provider.Error](err); ok && e.Reason != "" {
		plain := *e
		plain.Reason = ""
		return message(e.Reason, plain.Error())
	}
	return message("", err.Error())
}

// longest is how many bytes of what a provider says are kept and shown.
const longest = 1024

// message joins a word and a sentence, and bounds both.
func message(word, sentence string) string {
	text := strings.ToValidUTF8(strings.Trim(word+": "+sentence, ": "), "?")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// brief is an error, or the beginning of one that is too long to be kept or shown.
func brief(err error) error {
	if err == nil || len(err.Error()) <= longest {
		return err
	}
	return errors.New(message("", err.Error()))
}

// gist is a text without its numbers. Two that differ in a port or a duration alone say the same.
func gist(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*provider.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
