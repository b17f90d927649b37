package libvirt

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// However many calls there are of a host that is silent, they wait for one dial, and then for none until it has had a rest. One that
// refuses at once is asked each time, and so is one whose caller has no time left.
func TestLinkToASilentHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials, takes, silent := 0, 10*time.Second, errors.New("silent")
		l := newLink(func(ctx context.Context) (*Conn, error) {
			dials++
			select {
			case <-time.After(takes):
				return nil, silent
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		get := func(ctx context.Context, want error) {
			t.Helper()
			if _, err := l.get(ctx); !errors.Is(err, want) {
				t.Errorf("get returned %v, want %v", err, want)
			}
		}
		wantDials := func(want int, after time.Duration, since time.Time) {
			t.Helper()
			if took := time.Since(since); dials != want || took != after {
				t.Errorf("%d dials, after %v; want %d and %v", dials, took, want, after)
			}
		}
		began := time.Now()
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() { get(t.Context(), silent) })
		}
		calls.Wait()
		wantDials(1, takes, began)

		<-time.After(takes)
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		get(brief, context.DeadlineExceeded)
		get(t.Context(), silent)
		wantDials(3, 3*takes+time.Second, began)

		<-time.After(takes)
		takes, began = 0, time.Now()
		for range 3 {
			get(t.Context(), silent)
		}
		wantDials(6, 0, began)
	})
}
