package gc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/proxyfleet/fleet/provider"
)

// visit is one look at one provider.
type visit struct {
	Config
	name    string
	backend *backend
}

// plan judges what the provider lists by the records. The list comes first: an instance is made only after its record says
// so, and the record forgets it only when it is proven gone. So what was listed and is not in records that are read later is
// nobody's. Each provider has a reading of its own, right after its list, so that one that is slow makes no other's old.
//
// The error is that of the records, or of ctx. One of the provider is in the plan alone.
func (v visit) plan(ctx context.Context, at time.Time, allowed int) (ProviderPlan, error) {
	p := ProviderPlan{Provider: v.name, Allowed: allowed}
	list, err := v.backend.list(ctx)
	if ctx.Err() != nil {
		p.Err = context.Cause(ctx)
		return p, p.Err
	}
	if err != nil {
		p.Err = err
		return p, nil
	}
	records, err := v.live(ctx)
	if err != nil {
		p.Err = err
		return p, err
	}
	j := judge{v.Fleet, v.name, at.Add(-v.MinAge), records}
	p.Instances = j.verdicts(list)
	for _, verdict := range p.Instances {
		if verdict.Reason != OtherFleet {
			p.Listed++
		}
	}
	p.brake()
	return p, nil
}

// live reads the records. Its error says so, or that ctx ended.
func (v visit) live(ctx context.Context) (map[string]Held, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	records, err := v.Live(call)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrRecords, err)
	}
	return records, nil
}

// sweep makes a plan and carries it out.
func (v visit) sweep(ctx context.Context, at time.Time, allowed int) (ProviderPlan, error) {
	start := time.Now()
	p, err := v.plan(ctx, at, allowed)
	if p.Err == nil {
		v.tellHeld(ctx, p)
		err = v.collect(ctx, &p)
	}
	result := "ok"
	switch {
	case errors.Is(err, ErrRecords):
		result = "records_unreadable"
	case err != nil && p.Err != nil:
		return p, err // given up before there was anything to do
	case p.Err != nil:
		result = "unreadable"
		v.Logger.WarnContext(ctx, "provider not swept: it cannot be listed", "provider", v.name, "err", p.Err)
	case p.Braked:
		result = "braked"
	}
	v.Recorder.Swept(v.name, result, time.Since(start))
	return p, err
}

// tellHeld says what the brake holds back, in every sweep: it costs money, or was about to cost the fleet.
func (v visit) tellHeld(ctx context.Context, p ProviderPlan) {
	held := p.count(Hold)
	v.Recorder.Held(v.name, held)
	if held == 0 {
		return
	}
	const most = 10
	var names []string
	for _, verdict := range p.Instances {
		if verdict.Action == Hold && len(names) < most {
			names = append(names, verdict.ID)
		}
	}
	v.Logger.ErrorContext(ctx, "garbage collection is braked: it would delete too much of what the provider has, and deletes nothing of it",
		"provider", v.name, "held", held, "listed", p.Listed, "allowed", p.Allowed, "first", names)
}

// collect deletes what the plan says, one after the other. A deletion that fails does not stop the next one; its error is
// that of the records, or of ctx, and then stands at each deletion that was not made.
func (v visit) collect(ctx context.Context, p *ProviderPlan) error {
	var ended error
	for i := range p.Instances {
		verdict := &p.Instances[i]
		if verdict.Action != Delete {
			continue
		}
		if ended == nil {
			ended = v.confirm(ctx, verdict)
		}
		switch {
		case ended != nil:
			verdict.Err = ended
		case verdict.Action == Delete:
			v.delete(ctx, verdict)
		}
	}
	return ended
}

// confirm reads the records once more right before a deletion. Where a UID comes from the name, somebody may have declared
// the proxy again since they were last read, and its create may have met the instance. Between this reading and the deletion
// that can still happen; the proxy then gets a new instance, as after any other loss.
func (v visit) confirm(ctx context.Context, verdict *Verdict) error {
	records, err := v.live(ctx)
	if err != nil {
		return err
	}
	verdict.Reason, verdict.Key = judge{provider: v.name, records: records}.claim(*verdict)
	if !verdict.Reason.unclaimed() {
		verdict.Action = Keep
	}
	return nil
}

// delete deletes an instance by its incarnation. It is logged before, so that no crash hides it.
func (v visit) delete(ctx context.Context, verdict *Verdict) {
	if verdict.Err = v.backend.silent(); verdict.Err != nil {
		return
	}
	kind := strings.ToLower(string(verdict.Reason))
	log := v.Logger.With("provider", v.name, "id", verdict.ID, "uid", verdict.UID, "incarnation", verdict.Incarnation,
		"created", verdict.Created, "kind", kind)
	if verdict.Key != "" {
		log = log.With("proxy", verdict.Key)
	}
	log.WarnContext(ctx, "deleting an instance that no record holds")
	verdict.Err = v.backend.delete(ctx, provider.Ref{ID: verdict.ID, UID: verdict.UID, Incarnation: verdict.Incarnation})
	if verdict.Err != nil {
		log.WarnContext(ctx, "the deletion failed; the next sweep tries again", "err", verdict.Err)
		v.Recorder.Collected(v.name, kind, "error")
		return
	}
	v.Recorder.Collected(v.name, kind, "ok")
}

// endSpan ends the span of a sweep with what it did.
func endSpan(span trace.Span, plan Plan, err error) {
	defer span.End()
	var listed, deleted, failed, held, unreadable int
	for _, p := range plan.Providers {
		listed += p.Listed
		held += p.count(Hold)
		for _, verdict := range p.Instances {
			switch {
			case verdict.Action == Delete && verdict.Err == nil:
				deleted++
			case verdict.Action == Delete:
				failed++
			}
		}
		if p.Err != nil {
			unreadable++
		}
	}
	span.SetAttributes(attribute.Int("gc.listed", listed), attribute.Int("gc.deleted", deleted), attribute.Int("gc.failed", failed),
		attribute.Int("gc.held", held), attribute.Int("gc.unreadable", unreadable))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}
