package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/proxy"
)

// source is who declares what documents declare. It is one for all files, so that a document can move between them, and
// it is in state files, so it never changes.
const source = "documents"

// Store is what an [Applier] keeps like its documents. Every [proxy.Declarer] that is a [proxy.Store] too is one.
type Store interface {
	proxy.Declarer
	// Get returns a record, or [proxy.ErrNotFound]. The applier looks for edits that cannot be made before it makes any.
	Get(ctx context.Context, k proxy.Key) (*proxy.Proxy, error)
}

// ApplierConfig is what an [Applier] is made of.
type ApplierConfig struct {
	// Sources are what Run follows.
	Sources Sources
	// Store is kept like the set. Required.
	Store Store
	// Secrets are those that the store was opened with. Required.
	Secrets *Secrets
	// Logger is told what was applied, and why not. Defaults to none.
	Logger *slog.Logger
	// AllowDelete is how many proxies the first set that is applied may delete at once. Later sets may delete 3, or a
	// fifth of the proxies if that is more. Defaults to the same.
	AllowDelete int
	// Poll is the time between two looks at the sources. A change is applied when two looks in a row find the same.
	// Defaults to 1s.
	Poll time.Duration
}

// Applier keeps a store like its documents, and [Secrets] like theirs. Its methods are called one after the other, from
// any goroutine.
//
// A set is refused as a whole if a document is broken, if it makes an edit that cannot be made, or if too many proxies
// vanish with it. What was applied last then stays in force.
type Applier struct {
	cfg ApplierConfig

	started bool           // whether a set was applied
	running *Configuration // of the first set that was applied: what the process runs with
	current *Configuration // of the last one
	pending *plan          // nil when nothing is left to be done

	seen     digest // at the last look
	judged   digest // applied or refused
	reported string // what was last logged as an error, so that it is not logged at each look
}

// NewApplier makes an applier, or returns all that is wrong with its configuration.
func NewApplier(cfg ApplierConfig) (*Applier, error) {
	var problems []error
	if cfg.Store == nil {
		problems = append(problems, errors.New("ApplierConfig.Store is required"))
	}
	if cfg.Secrets == nil {
		problems = append(problems, errors.New("ApplierConfig.Secrets are required"))
	}
	if cfg.AllowDelete < 0 {
		problems = append(problems, fmt.Errorf("ApplierConfig.AllowDelete must not be negative, but is %d", cfg.AllowDelete))
	}
	if cfg.Poll < 0 {
		problems = append(problems, fmt.Errorf("ApplierConfig.Poll must not be negative, but is %v", cfg.Poll))
	}
	cfg.Poll = cmp.Or(cfg.Poll, time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Applier{cfg: cfg}, errors.Join(problems...)
}

// Apply makes the store like a set. Its error says why nothing was done, or what failed and is tried again by Run.
// A proxy whose name is still being deleted has not failed; Run declares it when the name is free.
//
// The first set that is applied is the one whose configuration the process runs with.
func (a *Applier) Apply(ctx context.Context, set *Set) error {
	before, err := look(ctx, a.cfg.Store, set)
	if err != nil {
		return err
	}
	allow := a.cfg.AllowDelete
	if a.started {
		allow = 0
	}
	p, err := judge(set, before, allow)
	a.seen, a.judged = set.digest, set.digest
	if err != nil {
		return err
	}
	a.pending = p
	a.configure(set.Configuration)
	return a.proceed(ctx)
}

// configure notes the configuration of a set that is applied, and says so if the process would need another one.
func (a *Applier) configure(c *Configuration) {
	if !a.started {
		a.started, a.running, a.current = true, c, c
		return
	}
	if !reflect.DeepEqual(c, a.running) && !reflect.DeepEqual(c, a.current) {
		a.cfg.Logger.Warn("the FleetConfiguration changed, which takes effect when the process starts again; proxies and Secrets are applied now")
	}
	a.current = c
}

// proceed does what is left to be done. Secrets come before the proxies that need them, and go after those that did.
func (a *Applier) proceed(ctx context.Context) error {
	p := a.pending
	a.cfg.Secrets.add(p.set.Secrets)
	err := p.carryOut(ctx, a.cfg.Store)
	if p.left() == 0 {
		a.cfg.Secrets.replace(p.set.Secrets)
		a.pending = nil
	}
	if !p.begun || p.left() == 0 {
		a.cfg.Logger.Info("applied the documents",
			"created", p.created, "changed", p.changed, "deleted", p.deleted, "waiting", p.left())
	}
	p.begun = true
	return err
}

// Run follows the sources until ctx ends. It looks at their content rather than waiting for events of the file system,
// which network file systems do not send and which editors and mounted Secrets send for the wrong file.
func (a *Applier) Run(ctx context.Context) {
	ticker := time.NewTicker(a.cfg.Poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.poll(ctx)
		}
	}
}

// poll looks at the sources once.
func (a *Applier) poll(ctx context.Context) {
	c := a.cfg.Sources.read()
	changed := c.digest != a.seen
	a.seen = c.digest
	if changed { // and may be half written
		a.reported = ""
		return
	}
	var err error
	switch {
	case c.digest != a.judged:
		err = a.take(ctx, c)
	case a.pending != nil:
		err = a.proceed(ctx)
	default:
		return
	}
	if ctx.Err() == nil {
		a.report(err)
	}
}

// take judges what was read, and applies it.
func (a *Applier) take(ctx context.Context, c contents) error {
	set, err := parse(c)
	if err != nil {
		a.judged = c.digest
		return &refusedError{err}
	}
	return a.Apply(ctx, set)
}

// report logs an error, once for as long as it stays the same.
func (a *Applier) report(err error) {
	if err == nil {
		a.reported = ""
		return
	}
	if err.Error() == a.reported {
		return
	}
	a.reported = err.Error()
	if _, refused := errors.AsType[*refusedError](err); refused {
		a.cfg.Logger.Error("refused the documents: nothing is applied, and what was applied last stays in force until they are mended",
			"problems", lines(err))
		return
	}
	a.cfg.Logger.Error("could not apply all documents; the rest is tried again", "problems", lines(err))
}

// maxLogged is how many problems one entry of the log holds.
const maxLogged = 20

// lines returns what an error says, a line for each problem.
func lines(err error) []string {
	all := strings.Split(err.Error(), "\n")
	if n := len(all) - maxLogged; n > 0 {
		all = append(all[:maxLogged], fmt.Sprintf("and %d more", n))
	}
	return all
}
