//go:build unix

package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/proxyfleet/fleet/health"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// BenchmarkReconcile makes passes that find everything as it should be: over an instance that runs and is healthy, and over
// an endpoint.
func BenchmarkReconcile(b *testing.B) {
	login := &secrets{}
	login.put("login", oldLogin)
	endpoint := proxy.Spec{Mode: proxy.External, Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: "192.0.2.9", Port: 3128}}
	specs := []struct {
		name string
		spec proxy.Spec
	}{
		{"managed", proxy.Spec{Provider: "machines"}},
		{"managed with credentials", proxy.Spec{Provider: "machines", Credentials: withLogin.Credentials}},
		{"external", endpoint},
	}
	for _, s := range specs {
		b.Run(s.name, func(b *testing.B) {
			store := proxy.NewMemory(proxy.MemoryConfig{Fleet: "test", Secrets: login})
			r := &Reconciler{Fleet: "test", Store: store, Hasher: hasher, Intervals: Intervals{}.WithDefaults(), Health: everybodyHealthy{},
				Providers: map[string]provider.Provider{"machines": &machines{made: map[string]provider.Instance{}}},
				Logger:    slog.New(slog.DiscardHandler), Tracer: noop.NewTracerProvider().Tracer("")}
			if _, err := store.Put(b.Context(), one, proxy.Declaration{Spec: s.spec}, "bench"); err != nil {
				b.Fatal(err)
			}
			pass := func() {
				if _, err := r.Reconcile(b.Context(), one); err != nil {
					b.Fatal(err)
				}
			}
			for range 3 {
				pass()
			}
			before, err := store.Get(b.Context(), one)
			if err != nil || before.Status.Phase != proxy.Ready {
				b.Fatalf("not steady: %+v, %v", before, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				pass()
			}
			if after, err := store.Get(b.Context(), one); err != nil || after.Version != before.Version {
				b.Fatalf("the passes wrote: %+v, %v", after, err)
			}
		})
	}
}

// BenchmarkIdle keeps 10,000 External proxies that are probed once a minute by a prober that waits and does nothing else, so
// that what is measured is what a fleet costs beyond its probes. It takes more than a minute, however often it is to loop.
func BenchmarkIdle(b *testing.B) {
	const proxies, interval, measured = 10_000, time.Minute, time.Minute
	empty := heap()
	store := proxy.NewMemory(proxy.MemoryConfig{Fleet: "test"})
	for i := range proxies {
		k := proxy.Key{Namespace: "default", Name: fmt.Sprintf("proxy-%05d", i)}
		spec := proxy.Spec{Mode: proxy.External, Attributes: map[string]string{"region": "eu", "kind": "datacentre"},
			Endpoint: &proxy.Endpoint{Scheme: proxy.HTTP, Host: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Port: 3128}}
		if _, err := store.Put(b.Context(), k, proxy.Declaration{Spec: spec}, "bench"); err != nil {
			b.Fatal(err)
		}
	}
	declared := heap()
	f, err := New(Config{Fleet: "test", Store: store, HealthCheck: proxy.HealthCheck{URL: "http://target.test/", Interval: proxy.Duration(interval)},
		Health: health.Config{Workers: 64, Prober: health.ProberFunc(wait)}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	began := time.Now()
	go func() { ended <- f.Run(ctx) }()
	for again := time.NewTicker(500 * time.Millisecond); ; <-again.C {
		if n := readyIn(store); n == proxies {
			again.Stop()
			break
		}
		if time.Since(began) > 5*interval {
			b.Fatal("not all are Ready")
		}
	}
	b.ReportMetric(time.Since(began).Seconds(), "s-until-ready")
	b.ReportMetric(float64(declared-empty)/proxies, "store-B/proxy")
	b.ReportMetric(float64(heap()-declared)/proxies, "fleet-B/proxy")
	timer := time.NewTimer(measured)
	before := cpu(b)
	<-timer.C
	b.ReportMetric(float64(cpu(b)-before)/float64(measured)*100, "%cpu")
	b.ReportMetric(0, "ns/op")
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	runtime.KeepAlive(store)
}

// wait takes as long as a quick proxy does.
func wait(ctx context.Context, _ health.Target) health.Result {
	const latency = 30 * time.Millisecond
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return health.Result{Party: health.PartyTimeout}
	case <-timer.C:
		return health.Result{OK: true, Latency: latency}
	}
}

func readyIn(store *proxy.Memory) (n int) {
	live, _ := store.Live(context.Background())
	for _, held := range live {
		if held.Phase == proxy.Ready {
			n++
		}
	}
	return n
}

// heap returns the bytes that are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpu returns the time that this process has computed.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHash hashes the inputs of one proxy, for the first time and then again.
func BenchmarkHash(b *testing.B) {
	in := proxy.Inputs{Username: secret.New("user"), Password: secret.New("password")}
	spec := proxy.Spec{Provider: "cloud"}
	b.Run("first", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			NewHasher("test").Hash(fmt.Sprint(i), spec, in)
		}
	})
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			hasher.Hash("uid-1", spec, in)
		}
	})
}
