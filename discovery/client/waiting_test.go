package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
)

const (
	notReady = `{"error":"not_ready","message":"later"}`
	noMatch  = `{"error":"no_match","message":"none","considered":1,"atCapacity":1}`
)

// script is what a server answers, one after the other. A wait that is part of it is taken.
type script []struct {
	status     int
	body       string
	retryAfter int  // seconds
	waits      bool // as long as it is asked to
}

// asked is one request that a server got.
type asked struct {
	At          time.Duration
	WaitSeconds int64
	RequestID   string
}

// TestWaiting makes sure how often a server is asked, and when, by a request that waits.
func TestWaiting(t *testing.T) {
	waits, now := true, false
	tests := []struct {
		name string
		wait time.Duration
		says script
		want []asked
		err  bool
	}{
		{"no wait", 0, script{{409, noMatch, 7, now}}, []asked{{0, 0, "id"}}, true},
		{"served at once", time.Hour, script{{201, granted, 0, now}}, []asked{{0, 60, "id"}}, false},
		{"a short wait in vain", 10 * time.Second, script{{409, noMatch, 0, waits}}, []asked{{0, 10, "id"}}, true},
		{"longer than a server waits", 150 * time.Second, script{{409, noMatch, 0, waits}, {409, noMatch, 0, waits}, {201, granted, 0, now}},
			[]asked{{0, 60, "id"}, {time.Minute, 60, "id"}, {2 * time.Minute, 30, "id"}}, false},
		{"a server that does not wait", 10 * time.Second, script{{409, noMatch, 0, now}, {409, noMatch, 4, now}, {409, noMatch, 7, now}},
			[]asked{{0, 10, "id"}, {time.Second, 9, "id"}, {5 * time.Second, 5, "id"}}, true},
		{"a server that is not ready", 20 * time.Second, script{{503, notReady, 5, now}, {503, notReady, 5, now}, {201, granted, 0, now}},
			[]asked{{0, 20, "id"}, {5 * time.Second, 15, "id"}, {10 * time.Second, 10, "id"}}, false},
		{"one that is not for longer", 7 * time.Second, script{{503, notReady, 5, now}, {503, notReady, 5, now}},
			[]asked{{0, 7, "id"}, {5 * time.Second, 2, "id"}}, true},
		{"one that is not, without a wait", 0, script{{503, notReady, 5, now}}, []asked{{0, 0, "id"}}, true},
		{"a request that is wrong", time.Hour, script{{400, `{"error":"invalid_ttl","message":"no"}`, 0, now}}, []asked{{0, 60, "id"}}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var got []asked
				c := over(t, test.says.serve(t, start, &got))
				_, err := c.Acquire(t.Context(), lease.Request{ID: "id", Wait: test.wait})
				if (err != nil) != test.err {
					t.Errorf("error %v", err)
				}
				if d := cmp.Diff(test.want, got); d != "" {
					t.Errorf("requests (-want +got):\n%s", d)
				}
				if took := time.Since(start); took > test.wait {
					t.Errorf("it took %v, want %v at most", took, test.wait)
				}
			})
		})
	}
}

func (s script) serve(t *testing.T, start time.Time, got *[]asked) transport {
	return func(r *http.Request) (*http.Response, error) {
		a := asked{At: time.Since(start)}
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			t.Error(err)
		}
		if *got = append(*got, a); len(*got) > len(s) {
			t.Fatal("one request too many")
		}
		says := s[len(*got)-1]
		if says.waits {
			time.Sleep(time.Duration(a.WaitSeconds) * time.Second)
		}
		resp := answer(says.status, says.body)
		if says.retryAfter > 0 {
			resp.Header.Set("Retry-After", strconv.Itoa(says.retryAfter))
		}
		return resp, nil
	}
}

// TestNotReady makes sure that calls which may be repeated are, when a server says that it will be ready.
func TestNotReady(t *testing.T) {
	calls := map[string]struct {
		call  func(ctx context.Context, c *client.Client) error
		again bool
	}{
		"renew": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Renew(ctx, "x", 0)
			return err
		}, true},
		"release": {func(ctx context.Context, c *client.Client) error { return c.Release(ctx, "x") }, true},
		"report": {func(ctx context.Context, c *client.Client) error {
			return c.Report(ctx, "x", lease.Report{Outcome: lease.OK})
		}, true},
		"allow sweep": {func(ctx context.Context, c *client.Client) error { return c.AllowSweep(ctx, "gcp", 1) }, false},
	}
	for name, test := range calls {
		for _, retryAfter := range []time.Duration{0, 5 * time.Second, time.Minute} {
			t.Run(name+" "+retryAfter.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					asked := 0
					err := test.call(t.Context(), over(t, func(*http.Request) (*http.Response, error) {
						asked++
						resp := answer(http.StatusServiceUnavailable, notReady)
						if retryAfter > 0 {
							resp.Header.Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
						}
						return resp, nil
					}))
					want, took := 1, time.Duration(0)
					if test.again && retryAfter == 5*time.Second { // a minute is beyond the deadline
						want, took = 6, 25*time.Second
					}
					if !errors.Is(err, lease.ErrNotReady) || asked != want || time.Since(start) != took {
						t.Errorf("%v after %d calls in %v, want %d in %v", err, asked, time.Since(start), want, took)
					}
				})
			})
		}
	}
}
