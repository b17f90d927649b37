package gc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

const (
	// callTimeout bounds each call of a provider and each reading of the records.
	callTimeout = 2 * time.Minute
	// grace is how long a call may take to return after its context has ended.
	grace = time.Second
)

// backend is a provider as a sweeper calls it. No call is waited for much longer than its context lasts, whether the provider
// heeds that or not. While one that was given up has not returned no other is made, so that they do not pile up.
type backend struct {
	provider provider.Provider
	lost     atomic.Int32 // calls that were given up and have not returned
}

// list lists the instances.
func (b *backend) list(ctx context.Context) ([]provider.Instance, error) {
	return await(ctx, b, b.provider.List)
}

// delete deletes an instance.
func (b *backend) delete(ctx context.Context, ref provider.Ref) error {
	_, err := await(ctx, b, func(ctx context.Context) (struct{}, error) { return struct{}{}, b.provider.Delete(ctx, ref) })
	return err
}

// silent returns an error while a call that was given up has not returned.
func (b *backend) silent() error {
	if b.lost.Load() > 0 {
		return errors.New("an earlier call, which was given up, has not returned yet")
	}
	return nil
}

// await makes a call and waits for it, or gives it up.
func await[T any](ctx context.Context, b *backend, call func(context.Context) (T, error)) (T, error) {
	var none T
	if err := b.silent(); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	type answer struct {
		result T
		err    error
	}
	returned := make(chan answer, 1)
	go func() {
		result, err := call(ctx)
		returned <- answer{result, clipped(err)}
	}()
	select {
	case a := <-returned:
		return a.result, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-returned:
		return a.result, a.err
	case <-time.After(grace):
	}
	b.lost.Add(1)
	go func() { <-returned; b.lost.Add(-1) }()
	return none, fmt.Errorf("the call did not return when its time was over: %w", ctx.Err())
}

// clipped bounds the text of a provider's error.
func clipped(err error) error {
	if err == nil {
		return nil
	}
	return brief{err}
}

// brief is an error with a bound on its text.
type brief struct{ error }

func (b brief) Error() string { return provider.Clip(b.error.Error()) }

func (b brief) Unwrap() error { return b.error }
