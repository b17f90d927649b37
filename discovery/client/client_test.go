package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery/client"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/secret"
)

// transport answers requests without a network.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// over makes a client of a transport.
func over(t testing.TB, rt transport) *client.Client {
	t.Helper()
	return newClient(t, client.Config{BaseURL: "http://fleet.example.com", HTTPClient: &http.Client{Transport: rt}})
}

func newClient(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const granted = `{"leaseID":"l","proxy":{"url":"http://192.0.2.7:3128","host":"192.0.2.7","port":3128,"name":"p","namespace":"n","attributes":{}},` +
	`"expiresAt":"2026-01-02T03:04:05Z","ttlSeconds":300,"moved":false}`

func TestConfig(t *testing.T) {
	tests := []struct {
		name, url, want string
	}{
		{"none", "", "BaseURL must be an http or https URL"},
		{"no scheme", "localhost:8090", "BaseURL must be an http or https URL"},
		{"another scheme", "ftp://localhost", "BaseURL must be an http or https URL"},
		{"no host", "http://", "BaseURL must be an http or https URL"},
		{"password that is no URL", "http://user:planted%zz@localhost", "BaseURL must be an http or https URL"},
		{"password", "http://user:planted@localhost", "BaseURL must not hold a user or password"},
		{"query", "http://localhost/?a=b", "BaseURL must have no query"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := client.New(client.Config{BaseURL: test.url})
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "planted") {
				t.Errorf("error %v, want %q and no password", err, test.want)
			}
		})
	}
}

// TestRequests looks at what is sent.
func TestRequests(t *testing.T) {
	key := [2]string{"default", "berlin"}
	tests := []struct {
		name string
		call func(context.Context, *client.Client) error
		want string // method, escaped path and query, body
	}{
		{"acquire", func(ctx context.Context, c *client.Client) error {
			_, err := c.Acquire(ctx, lease.Request{
				ID: "r", Selector: map[string]string{"region": "eu"}, Target: "example.com", TTL: 90 * time.Second,
				Wait: 1500 * time.Millisecond, Session: "s", Count: 2,
			})
			return err
		}, `POST /v1/leases {"selector":{"region":"eu"},"target":"example.com","ttlSeconds":90,"requestID":"r","session":"s","count":2,"waitSeconds":2}`},
		{"renew", func(ctx context.Context, c *client.Client) error {
			_, err := c.Renew(ctx, "a/b", time.Minute)
			return err
		}, `POST /v1/leases/a%2Fb/renew {"ttlSeconds":60}`},
		{"renew for less than no time", func(ctx context.Context, c *client.Client) error {
			_, err := c.Renew(ctx, "a", -time.Millisecond)
			return err
		}, `POST /v1/leases/a/renew {"ttlSeconds":-1}`},
		{"release", func(ctx context.Context, c *client.Client) error { return c.Release(ctx, "a?b") }, `DELETE /v1/leases/a%3Fb `},
		{"release of a step up", func(ctx context.Context, c *client.Client) error { return c.Release(ctx, "..") }, `DELETE /v1/leases/%2E%2E `},
		{"report", func(ctx context.Context, c *client.Client) error {
			return c.Report(ctx, "a", lease.Report{Outcome: lease.Banned, Target: "example.com"})
		}, `POST /v1/leases/a/report {"result":"banned","target":"example.com"}`},
		{"list", func(ctx context.Context, c *client.Client) error {
			_, err := c.ListProxies(ctx, client.Filter{Namespace: "n", Attributes: map[string]string{"region": "e&u"}, Healthy: new(false)})
			return err
		}, `GET /v1/proxies?attr.region=e%26u&healthy=false&limit=200&namespace=n `},
		{"show", func(ctx context.Context, c *client.Client) error {
			_, err := c.GetProxy(ctx, key[0], key[1])
			return err
		}, `GET /v1/proxies/default/berlin `},
		{"skip cleanup", func(ctx context.Context, c *client.Client) error {
			_, err := c.SkipCleanup(ctx, key[0], key[1])
			return err
		}, `POST /v1/proxies/default/berlin/skip-cleanup `},
		{"retry", func(ctx context.Context, c *client.Client) error {
			_, err := c.Retry(ctx, key[0], key[1])
			return err
		}, `POST /v1/proxies/default/berlin/retry `},
		{"backup", func(ctx context.Context, c *client.Client) error { return c.Backup(ctx, io.Discard) }, `GET /v1/backup `},
		{"explain", func(ctx context.Context, c *client.Client) error {
			_, err := c.Explain(ctx, "a/b", "..")
			return err
		}, `GET /v1/proxies/a%2Fb/%2E%2E/explain `},
		{"list providers", func(ctx context.Context, c *client.Client) error {
			_, err := c.ListProviders(ctx)
			return err
		}, `GET /v1/providers `},
		{"plan a sweep", func(ctx context.Context, c *client.Client) error {
			_, err := c.PlanSweep(ctx)
			return err
		}, `GET /v1/gc/plan `},
		{"sweep", func(ctx context.Context, c *client.Client) error {
			_, err := c.Sweep(ctx)
			return err
		}, `POST /v1/gc/sweep `},
		{"allow a sweep", func(ctx context.Context, c *client.Client) error { return c.AllowSweep(ctx, "gcp", 12) },
			`POST /v1/gc/allow {"provider":"gcp","max":12}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got string
			c := newClient(t, client.Config{
				BaseURL: "https://gateway.example.com/fleet/", Token: secret.New("correct-horse"), UserAgent: "test",
				HTTPClient: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					var body []byte
					if r.Body != nil {
						body, _ = io.ReadAll(r.Body)
					}
					path, below := strings.CutPrefix(r.URL.String(), "https://gateway.example.com/fleet")
					if !below || r.Header.Get("Authorization") != "Bearer correct-horse" || r.UserAgent() != "test" {
						t.Errorf("sent to %s with %v", r.URL, r.Header)
					}
					if want := len(body) > 0; want != (r.Header.Get("Content-Type") == "application/json") {
						t.Errorf("Content-Type %q with a body of %d bytes", r.Header.Get("Content-Type"), len(body))
					}
					got = r.Method + " " + path + " " + string(body)
					return answer(http.StatusOK, granted), nil
				})},
			})
			if err := test.call(t.Context(), c); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLostAnswers makes sure that a call whose answer is lost is repeated, as the same request, and not for ever.
func TestLostAnswers(t *testing.T) {
	tests := []struct {
		name  string
		lost  int // how many answers are
		calls int
		took  time.Duration
		fails bool
	}{
		{"none", 0, 1, 0, false},
		{"one", 1, 2, 100 * time.Millisecond, false},
		{"two", 2, 3, 400 * time.Millisecond, false},
		{"all", 99, 3, 400 * time.Millisecond, true},
	}
	for _, test := range tests {
		for _, where := range []string{"before the answer", "within the answer"} {
			t.Run(test.name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var ids []string
					c := over(t, func(r *http.Request) (*http.Response, error) {
						var body struct{ RequestID string }
						if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
							t.Error(err)
						}
						ids = append(ids, body.RequestID)
						switch {
						case len(ids) > test.lost:
							return answer(http.StatusCreated, granted), nil
						case where == "before the answer":
							return nil, io.ErrUnexpectedEOF
						}
						resp := answer(http.StatusCreated, "")
						resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(granted[:20]), broken{}))
						return resp, nil
					})
					start := time.Now()
					_, err := c.Acquire(t.Context(), lease.Request{})
					if (err != nil) != test.fails || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Errorf("error %v", err)
					}
					if took := time.Since(start); len(ids) != test.calls || took != test.took {
						t.Errorf("%d calls in %v, want %d in %v", len(ids), took, test.calls, test.took)
					}
					for _, id := range ids {
						if id == "" || id != ids[0] {
							t.Errorf("request IDs %q: want one and the same", ids)
						}
					}
				})
			})
		}
	}
}

// broken is a connection that broke.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// What an operator allowed once is not done twice because an answer was lost.
func TestSweepsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := over(t, func(*http.Request) (*http.Response, error) {
			calls++
			return nil, io.ErrUnexpectedEOF
		})
		_, swept := c.Sweep(t.Context())
		allowed := c.AllowSweep(t.Context(), "gcp", 1)
		if !errors.Is(swept, io.ErrUnexpectedEOF) || !errors.Is(allowed, io.ErrUnexpectedEOF) || calls != 2 {
			t.Errorf("%d calls: %v, %v", calls, swept, allowed)
		}
	})
}

func TestEveryRequestHasAnIDOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	c := over(t, func(r *http.Request) (*http.Response, error) {
		var body struct{ RequestID string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		seen[body.RequestID] = true
		return answer(http.StatusCreated, granted), nil
	})
	for range 3 {
		if _, err := c.Acquire(t.Context(), lease.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 3 || seen[""] {
		t.Errorf("request IDs %v, want three", seen)
	}
}

// TestSilentServer makes sure that every call ends, and that of a context first.
func TestSilentServer(t *testing.T) {
	silent := transport(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	calls := map[string]struct {
		call func(context.Context, *client.Client) error
		want time.Duration
	}{
		"acquire": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Acquire(ctx, lease.Request{})
			return err
		}, 30 * time.Second},
		"acquire with a wait": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Acquire(ctx, lease.Request{Wait: time.Minute})
			return err
		}, 90 * time.Second},
		"acquire with a wait of years": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Acquire(ctx, lease.Request{Wait: 1<<63 - 1})
			return err
		}, 90 * time.Second},
		"release": {func(ctx context.Context, c *client.Client) error { return c.Release(ctx, "x") }, 30 * time.Second},
		"backup":  {func(ctx context.Context, c *client.Client) error { return c.Backup(ctx, io.Discard) }, time.Hour},
		"explain": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Explain(ctx, "default", "berlin")
			return err
		}, 30 * time.Second},
		"sweep": {func(ctx context.Context, c *client.Client) error {
			_, err := c.Sweep(ctx)
			return err
		}, 6*time.Minute + 30*time.Second},
	}
	for name, test := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := test.call(t.Context(), over(t, silent))
				if took := time.Since(start); took != test.want || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v after %v, want the deadline after %v", err, took, test.want)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start = time.Now()
				err = test.call(ctx, over(t, silent))
				if took := time.Since(start); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v after %v, want the deadline of the context after 1s", err, took)
				}
			})
		})
	}
}

// endless is an answer that does not end.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	return len(b), nil // of zeros
}

func TestEndlessAnswer(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusBadGateway} {
		body := &endless{}
		calls := 0
		c := over(t, func(*http.Request) (*http.Response, error) {
			calls++
			return &http.Response{StatusCode: status, Body: io.NopCloser(body)}, nil
		})
		if _, err := c.GetProxy(t.Context(), "n", "p"); err == nil {
			t.Error("no error")
		}
		if body.read > 17<<20 || calls != 1 {
			t.Errorf("%d bytes were read in %d calls", body.read, calls)
		}
	}
}

func TestEndlessList(t *testing.T) {
	pages := map[string]string{
		"the same page":   `{"proxies":[{"name":"p"}],"count":1,"continue":"again"}`,
		"pages of nobody": `{"proxies":[],"count":1,"continue":"%d"}`,
	}
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			calls := 0
			c := over(t, func(*http.Request) (*http.Response, error) {
				calls++
				return answer(http.StatusOK, strings.ReplaceAll(page, "%d", fmt.Sprint(calls))), nil
			})
			if _, err := c.ListProxies(t.Context(), client.Filter{}); err == nil || calls > 2 {
				t.Errorf("%v after %d calls", err, calls)
			}
		})
	}
}

// TestErrorsQuoteNoSecrets: neither a password in an answer, nor the token, nor the ID of a lease.
func TestErrorsQuoteNoSecrets(t *testing.T) {
	answers := map[string]transport{
		"a URL that is none": func(*http.Request) (*http.Response, error) {
			return answer(http.StatusOK, strings.Replace(granted, "http://", "http://user:planted%zz@", 1)), nil
		},
		"no JSON": func(*http.Request) (*http.Response, error) {
			return answer(http.StatusOK, `{"url":"http://user:planted@host`), nil
		},
		"no lease": func(*http.Request) (*http.Response, error) {
			return answer(http.StatusOK, `{"proxy":{"url":"http://user:planted@host"}}`), nil
		},
		"a gateway": func(*http.Request) (*http.Response, error) {
			return answer(http.StatusBadGateway, `<html>planted`), nil
		},
		"no connection": func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") },
	}
	for name, rt := range answers {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, client.Config{BaseURL: "http://fleet", Token: secret.New("planted-token"), HTTPClient: &http.Client{Transport: rt}})
			_, err := c.Renew(t.Context(), "planted-id", time.Minute)
			if err == nil || strings.Contains(err.Error(), "planted") {
				t.Errorf("error %v", err)
			}
			if text := fmt.Sprintf("%v %+v %#v", c, c, *c); strings.Contains(text, "planted") {
				t.Errorf("the client prints as %s", text)
			}
		})
	}
}

func TestNothingIsAskedAboutNothing(t *testing.T) {
	c := over(t, func(r *http.Request) (*http.Response, error) {
		t.Errorf("%s %s", r.Method, r.URL)
		return nil, io.EOF
	})
	if _, err := c.Renew(t.Context(), "", time.Minute); !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("renew: %v", err)
	}
	if err := c.Report(t.Context(), "", lease.Report{Outcome: lease.OK}); !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("report: %v", err)
	}
	if err := c.Release(t.Context(), ""); err != nil {
		t.Errorf("release: %v", err)
	}
	if _, err := c.GetProxy(t.Context(), "default", ""); err == nil {
		t.Error("get: no error")
	}
	if _, err := c.Explain(t.Context(), "", "berlin"); err == nil {
		t.Error("explain: no error")
	}
}

// A redirect is an error: to follow it would make a GET of a release, whose page says 200, and may take the token elsewhere.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	given := &http.Client{}
	for name, sender := range map[string]*http.Client{"by a client of its own": nil, "by a given one": given} {
		t.Run(name, func(t *testing.T) {
			err := newClient(t, client.Config{BaseURL: server.URL, HTTPClient: sender}).Release(t.Context(), "x")
			if e, ok := errors.AsType[*client.APIError](err); !ok || e.Status != http.StatusFound || e.Code != "" {
				t.Errorf("error %v", err)
			}
		})
	}
	if given.CheckRedirect != nil {
		t.Error("the given client was changed")
	}
}

func TestBackupBreaksOff(t *testing.T) {
	c := over(t, func(*http.Request) (*http.Response, error) {
		resp := answer(http.StatusOK, "")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), broken{}))
		return resp, nil
	})
	var got bytes.Buffer
	if err := c.Backup(t.Context(), &got); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v after %q", err, got.String())
	}
}
