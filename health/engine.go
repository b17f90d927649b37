package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// eventCapacity is how many events wait for a slow receiver.
const eventCapacity = 64

// warningPause is the time between two warnings of one kind.
const warningPause = time.Minute

// Config is what an [Engine] is made of.
type Config struct {
	// Prober makes the probes. Required.
	Prober Prober
	// Workers is how many probes run at once. Each proxy that answers nothing holds one for its whole timeout, so a large
	// fleet needs about (proxies per interval) × (seconds per probe) of them; the engine warns when it runs late. Defaults
	// to 8.
	Workers int
	// Tick is how often an idle engine looks for what is due. Defaults to 1s.
	Tick time.Duration
	// MinReportInterval is the least time between an event and a following one that tells only of a moved latency or a
	// changed reason. Defaults to 60s.
	MinReportInterval time.Duration
	// TraceProbes makes a span "health.probe" of each probe, a trace of its own: many. Defaults to none.
	TraceProbes bool
	// TracerProvider makes the spans. Defaults to one that makes none.
	TracerProvider trace.TracerProvider
	// Logger hears of turned verdicts, of probes that run late, and of those that this process lacks the means for. Defaults
	// to a logger that discards.
	Logger *slog.Logger
	// Recorder hears of every probe. Defaults to none.
	Recorder Recorder
}

func (c Config) validate() error {
	var problems []error
	if c.Prober == nil {
		problems = append(problems, errors.New("health: Prober: is missing"))
	}
	if c.Workers < 0 {
		problems = append(problems, fmt.Errorf("health: Workers: %d is negative", c.Workers))
	}
	if c.Tick < 0 {
		problems = append(problems, fmt.Errorf("health: Tick: %v is negative", c.Tick))
	}
	if c.MinReportInterval < 0 {
		problems = append(problems, fmt.Errorf("health: MinReportInterval: %v is negative", c.MinReportInterval))
	}
	return errors.Join(problems...)
}

func (c Config) withDefaults() Config {
	if c.Workers == 0 {
		c.Workers = 8
	}
	if c.Tick == 0 {
		c.Tick = time.Second
	}
	if c.MinReportInterval == 0 {
		c.MinReportInterval = time.Minute
	}
	if c.TracerProvider == nil || !c.TraceProbes {
		c.TracerProvider = noop.NewTracerProvider()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Recorder == nil {
		c.Recorder = noRecorder{}
	}
	return c
}

type noRecorder struct{}

func (noRecorder) Probed(string, Result) {}
func (noRecorder) Forgotten(string)      {}

// Engine probes the targets that it is given and keeps a verdict on each. All methods may be called at any time from any
// goroutine; they are cheap and never wait for a probe.
type Engine struct {
	cfg    Config
	tracer trace.Tracer
	events chan string
	late   throttle
	local  throttle

	mu       sync.Mutex
	running  bool
	entries  map[string]*entry
	schedule schedule
}

// New makes an engine that knows no targets. It probes while Run runs. The error names everything wrong with cfg.
func New(cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Engine{
		cfg:     cfg,
		tracer:  cfg.TracerProvider.Tracer("github.com/proxyfleet/fleet/health"),
		events:  make(chan string, eventCapacity),
		entries: map[string]*entry{},
	}, nil
}

// Events delivers keys of which there is something to tell: a first verdict, a turned one, a latency of a healthy proxy
// that moved by more than 20 ms and by more than half, or a changed reason of an unhealthy one; the last two at most once
// per MinReportInterval and key. There is one channel, with room for 64 keys, and it is never closed. An event that finds
// no room is not lost: the key's next probe sends it. A key may meanwhile have been removed; Snapshot then says so.
func (e *Engine) Events() <-chan string { return e.events }

// Set makes a target known, or updates what is known of it. A new key or a new incarnation starts afresh, and its first
// probe is due now; a seeded one is due at a random time within its interval, so that a restart does not probe the whole
// fleet at once. For a known incarnation the parameters change and everything learnt stays. An error is that of
// [Target.Validate]: the target is not taken and changes nothing.
func (e *Engine) Set(t Target) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("health: target %s: %w", t.Key, err)
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.entries[t.Key]
	switch {
	case !ok:
		known = &entry{}
		known.begin(t, t.Seed, now)
		e.entries[t.Key] = known
		e.schedule.add(known)
		return nil
	case known.removed:
		known.begin(t, t.Seed, now)
	case known.target.Incarnation != t.Incarnation:
		known.begin(t, Unknown, now)
	default:
		known.update(t, now)
	}
	if known.probe == nil {
		e.schedule.moved(known)
	}
	return nil
}

// Remove forgets a target. The result of a probe under way is dropped. Removing what is not known does nothing.
func (e *Engine) Remove(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.lookup(key)
	if !ok {
		return
	}
	if known.probe == nil {
		e.schedule.remove(known)
		delete(e.entries, key)
	} else {
		// The entry stays until its probe has ended, so that a target that is set again soon is not probed twice at once.
		known.removed = true
		known.abandon()
	}
	e.cfg.Recorder.Forgotten(key)
}

// Hurry makes the next probe of a target due now. One that is under way is followed by another at once, for it may have
// begun before what made the caller ask. Hurrying what is not known does nothing.
func (e *Engine) Hurry(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.lookup(key)
	switch {
	case !ok:
	case known.probe != nil:
		known.hurried = true
	default:
		if now := time.Now(); known.due.After(now) {
			known.due = now
			e.schedule.moved(known)
		}
	}
}

// Snapshot returns what is known of an incarnation. It is false when the engine does not know the key, or knows it with
// another incarnation.
func (e *Engine) Snapshot(key, incarnation string) (Snapshot, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.lookup(key)
	if !ok || known.target.Incarnation != incarnation {
		return Snapshot{}, false
	}
	return known.standing.snapshot(), true
}

func (e *Engine) lookup(key string) (*entry, bool) {
	known, ok := e.entries[key]
	return known, ok && !known.removed
}

// Run probes until ctx ends, waits for the probes under way, whose results it drops, and returns nil. A second Run at the
// same time is an error; a later one goes on with what the engine knows.
//
// The next probe of a target is due one interval after the start of the last, less a random part of up to a tenth that
// keeps targets which were set together from staying together. A probe that outlasts its interval is followed by the
// next as it ends. When every worker is busy, what is due waits for the first that is free, in the order of being due;
// one slow proxy therefore costs others nothing but the worker that it holds.
func (e *Engine) Run(ctx context.Context) error {
	if !e.acquire() {
		return errors.New("health: the engine runs already")
	}
	defer e.release()
	wake := make(chan struct{}, 1)
	var workers sync.WaitGroup
	defer workers.Wait()
	for range e.cfg.Workers {
		workers.Go(func() { e.work(ctx, wake) })
	}
	ticker := time.NewTicker(e.cfg.Tick)
	defer ticker.Stop()
	for {
		late, due := e.lateness(time.Now())
		if due {
			nudge(wake)
		}
		if late > 0 && e.late.pass() {
			e.cfg.Logger.WarnContext(ctx, "health probes run late: raise the number of workers or the intervals",
				"late", late, "workers", e.cfg.Workers)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (e *Engine) acquire() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.running
	e.running = true
	return !was
}

func (e *Engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// lateness says whether anything is due, and by how much the first that is due has missed a whole interval.
func (e *Engine) lateness(now time.Time) (late time.Duration, due bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := e.schedule.first()
	if first == nil || first.due.After(now) {
		return 0, false
	}
	return max(0, now.Sub(first.due)-first.target.Interval), true
}

// nudge wakes one idle worker. When a wake-up is pending already, that one will do.
func nudge(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// work probes what is due whenever it is woken. A worker that leaves something due wakes the next one.
func (e *Engine) work(ctx context.Context, wake chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		for ctx.Err() == nil {
			probeCtx, p, more := e.take(ctx)
			if p == nil {
				break
			}
			if more {
				nudge(wake)
			}
			r := e.probe(probeCtx, p.target)
			e.finish(ctx, p, r)
		}
	}
}

// take begins the probe that is due first, or returns none. It also says whether more are due.
func (e *Engine) take(ctx context.Context) (probeCtx context.Context, p *probe, more bool) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	next := e.schedule.next(now)
	if next == nil {
		return nil, nil, false
	}
	probeCtx, cancel := context.WithTimeout(ctx, next.target.Timeout)
	next.probe = &probe{entry: next, target: next.target, started: now, cancel: cancel}
	first := e.schedule.first()
	return probeCtx, next.probe, first != nil && !first.due.After(now)
}

// probe makes one probe, without the lock.
func (e *Engine) probe(ctx context.Context, t Target) Result {
	ctx, span := e.tracer.Start(ctx, "health.probe", trace.WithNewRoot(), trace.WithAttributes(attribute.String("proxy", t.Key)))
	defer span.End()
	r := e.cfg.Prober.Probe(ctx, t)
	if r.At.IsZero() {
		r.At = time.Now()
	}
	if !r.OK {
		span.SetAttributes(attribute.String("party", string(r.Party)))
		span.SetStatus(codes.Error, r.Message)
	}
	return r
}

// finish takes a probe's result and puts its target back into the schedule.
func (e *Engine) finish(ctx context.Context, p *probe, r Result) {
	p.cancel()
	verdict, turned := e.settle(ctx, p, r)
	if turned {
		attributes := []any{"proxy", p.target.Key, "verdict", string(verdict)}
		if !r.OK {
			attributes = append(attributes, "party", string(r.Party), "message", r.Message)
		}
		e.cfg.Logger.InfoContext(ctx, "health verdict", attributes...)
	}
	if r.Party == PartyLocal && e.local.pass() {
		e.cfg.Logger.WarnContext(ctx, "health probes do not count: this process lacks the means to make them",
			"proxy", p.target.Key, "message", r.Message)
	}
}

// settle counts the result, unless it says nothing about the target as it is now.
func (e *Engine) settle(ctx context.Context, p *probe, r Result) (verdict Verdict, turned bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := p.entry
	known.probe = nil
	if known.removed {
		delete(e.entries, known.target.Key)
		return Unknown, false
	}
	defer e.schedule.add(known)
	if p.abandoned || ctx.Err() != nil {
		return known.standing.verdict, false
	}
	known.follow(p.started)
	if known.hurried {
		known.hurried, known.due = false, time.Now()
	}
	known.history.add(r)
	if r.Party == PartyLocal {
		return known.standing.verdict, false
	}
	turned = known.standing.add(r)
	e.cfg.Recorder.Probed(known.target.Key, r)
	e.emit(known)
	return known.standing.verdict, turned
}

// emit sends the target's key if there is something to tell. In a full channel nothing was told, so that the next probe
// finds the same news again.
func (e *Engine) emit(known *entry) {
	now := time.Now()
	if !known.standing.news(now, e.cfg.MinReportInterval) {
		return
	}
	select {
	case e.events <- known.target.Key:
		known.standing.tell(now)
	default:
	}
}
