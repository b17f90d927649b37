package discovery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/lease"
	"github.com/proxyfleet/fleet/proxy"
)

// BenchmarkAcquireRelease has clients acquire a lease and release it over HTTP, and compares that with a handler that does
// nothing but read the same request and write the same answer, done in turns.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			fleet, plain := newCaller(b, fleetHandler(b), clients), newCaller(b, plainHandler(), clients)
			for b.Loop() {
				fleet.turn(b)
				plain.turn(b)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(fleet.perSecond(), "leases/s")
			b.ReportMetric(fleet.perSecond()/plain.perSecond(), "×plain")
			for _, at := range []struct {
				name string
				c    *caller
			}{{"", fleet}, {"plain-", plain}} {
				b.ReportMetric(at.c.percentile(50), at.name+"p50-µs")
				b.ReportMetric(at.c.percentile(99), at.name+"p99-µs")
			}
		})
	}
}

// BenchmarkHandler does the same without a network.
func BenchmarkHandler(b *testing.B) {
	for name, h := range map[string]http.Handler{"fleet": fleetHandler(b), "plain": plainHandler()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://127.0.0.1/v1/leases", bytes.NewReader(leaseBody)))
				var got struct{ LeaseID string }
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusCreated {
					b.Fatal(w.Code, err)
				}
				w = httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "http://127.0.0.1/v1/leases/"+got.LeaseID, nil))
				if w.Code != http.StatusNoContent {
					b.Fatal(w.Code)
				}
			}
		})
	}
}

var leaseBody = []byte(`{"selector":{"region":"eu"},"target":"example.com","ttlSeconds":300,"requestID":"7f9d2c4e"}`)

// fleetHandler serves the leases of a thousand proxies.
func fleetHandler(b *testing.B) http.Handler {
	leases, err := lease.NewMemory(lease.Config{CooldownWindow: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		name := fmt.Sprintf("proxy-%04d", i)
		leases.Set(lease.Candidate{
			Key:        "default/" + name,
			Endpoint:   lease.Endpoint{Namespace: "default", Name: name, Scheme: "http", Host: "192.0.2.7", Port: 3128},
			Attributes: map[string]string{"region": "eu"},
			MaxLeases:  10,
			Healthy:    true,
		})
	}
	h, err := discovery.New(discovery.Config{Proxies: proxy.NewMemory(proxy.MemoryConfig{}), Leases: withoutID{leases}})
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// withoutID makes a new request of each, for the benchmark sends the same bytes again and again.
type withoutID struct{ *lease.Memory }

func (w withoutID) Acquire(ctx context.Context, r lease.Request) (lease.Grant, error) {
	r.ID = ""
	return w.Memory.Acquire(ctx, r)
}

// plainHandler reads what a fleet reads and writes what a fleet writes.
func plainHandler() http.Handler {
	type endpoint struct {
		URL        string            `json:"url"`
		Host       string            `json:"host"`
		Port       int               `json:"port"`
		Name       string            `json:"name"`
		Namespace  string            `json:"namespace"`
		Attributes map[string]string `json:"attributes"`
	}
	type granted struct {
		LeaseID    string    `json:"leaseID"`
		Proxy      endpoint  `json:"proxy"`
		Target     string    `json:"target"`
		ExpiresAt  time.Time `json:"expiresAt"`
		TTLSeconds int64     `json:"ttlSeconds"`
		Moved      bool      `json:"moved"`
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/leases", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Selector    map[string]string `json:"selector"`
			Target      string            `json:"target"`
			TTLSeconds  int64             `json:"ttlSeconds"`
			RequestID   string            `json:"requestID"`
			Session     string            `json:"session"`
			Count       int               `json:"count"`
			WaitSeconds int64             `json:"waitSeconds"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(granted{
			LeaseID: "AAAAAA4WGBFTKJ2K3FXQ6XZL3M7YV4TE",
			Proxy: endpoint{URL: "http://192.0.2.7:3128", Host: "192.0.2.7", Port: 3128, Name: "proxy-0001", Namespace: "default",
				Attributes: map[string]string{"region": "eu"}},
			Target: body.Target, ExpiresAt: time.Now().UTC().Truncate(time.Millisecond), TTLSeconds: body.TTLSeconds,
		})
	})
	mux.HandleFunc("DELETE /v1/leases/{id}", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	return mux
}

// caller is clients of a server, each with a connection of its own.
type caller struct {
	url     string
	client  *http.Client
	clients int
	turns   []time.Duration
	pairs   []time.Duration // each an acquire and its release
}

func newCaller(b *testing.B, h http.Handler, clients int) *caller {
	server := httptest.NewServer(h)
	b.Cleanup(server.Close)
	return &caller{url: server.URL, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}, clients: clients}
}

const pairsPerTurn = 64

// turn has the clients make some pairs of calls at once.
func (c *caller) turn(b *testing.B) {
	var all sync.WaitGroup
	var mu sync.Mutex
	begun := time.Now()
	for range c.clients {
		all.Go(func() {
			var took []time.Duration
			for range pairsPerTurn / c.clients {
				from := time.Now()
				if err := c.pair(); err != nil {
					b.Error(err)
					return
				}
				took = append(took, time.Since(from))
			}
			mu.Lock()
			defer mu.Unlock()
			c.pairs = append(c.pairs, took...)
		})
	}
	all.Wait()
	c.turns = append(c.turns, time.Since(begun))
}

func (c *caller) pair() error {
	answer, err := c.do(http.MethodPost, "/v1/leases", leaseBody)
	if err != nil {
		return err
	}
	var got struct{ LeaseID string }
	if err := json.Unmarshal(answer, &got); err != nil {
		return err
	}
	_, err = c.do(http.MethodDelete, "/v1/leases/"+got.LeaseID, nil)
	return err
}

func (c *caller) do(method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequest(method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, err
}

// perSecond is how many pairs the turn in the middle made in a second.
func (c *caller) perSecond() float64 {
	slices.Sort(c.turns)
	return pairsPerTurn / c.turns[len(c.turns)/2].Seconds()
}

// percentile is how many microseconds so many pairs of a hundred took at most.
func (c *caller) percentile(p int) float64 {
	slices.Sort(c.pairs)
	return float64(c.pairs[(len(c.pairs)-1)*p/100].Nanoseconds()) / 1000
}
