package provider

import (
	"context"
	"time"
)

// Recorder counts the calls of providers. It is called concurrently.
type Recorder interface {
	// Called says that a call ended: the method in lower case, the class of its error, "" for success, and the time it
	// took. Calls that their callers gave up say nothing about a provider and are not told.
	Called(provider, op string, class Class, took time.Duration)
}

// WithRecorder tells r of each call that goes to the backend. Plan goes nowhere and is not counted.
func WithRecorder(p Provider, name string, r Recorder) Provider { return &recorded{p, name, r} }

type recorded struct {
	Provider
	name     string
	recorder Recorder
}

func (p *recorded) Unwrap() Provider { return p.Provider }

func (p *recorded) Create(ctx context.Context, r Request) (Instance, error) {
	start := time.Now()
	in, err := p.Provider.Create(ctx, r)
	p.record("create", start, err)
	return in, err
}

func (p *recorded) Get(ctx context.Context, ref Ref) (Instance, error) {
	start := time.Now()
	in, err := p.Provider.Get(ctx, ref)
	p.record("get", start, err)
	return in, err
}

func (p *recorded) Delete(ctx context.Context, ref Ref) error {
	start := time.Now()
	err := p.Provider.Delete(ctx, ref)
	p.record("delete", start, err)
	return err
}

func (p *recorded) List(ctx context.Context) ([]Instance, error) {
	start := time.Now()
	all, err := p.Provider.List(ctx)
	p.record("list", start, err)
	return all, err
}

func (p *recorded) record(op string, start time.Time, err error) {
	if class := ClassOf(err); class != ErrCanceled {
		p.recorder.Called(p.name, op, class, time.Since(start))
	}
}
