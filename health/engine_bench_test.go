package health

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
)

const benchmarkFleet = 10_000

func benchmarkTarget(i int, interval time.Duration) Target {
	return Target{
		Key: fmt.Sprintf("default/proxy-%d", i), Incarnation: fmt.Sprintf("%032x", i),
		Scheme: "http", Host: fmt.Sprintf("10.0.%d.%d", i/256, i%256), Port: 3128,
		URL: "https://www.gstatic.com/generate_204", ExpectedStatus: []int{204},
		Interval: interval, Timeout: 10 * time.Second, SuccessThreshold: 1, FailureThreshold: 3, Seed: Healthy,
	}
}

func benchmarkEngine(b *testing.B, interval time.Duration) *Engine {
	b.Helper()
	prober := ProberFunc(func(context.Context, Target) Result { return Result{OK: true, Latency: time.Millisecond} })
	e, err := New(Config{Prober: prober})
	if err != nil {
		b.Fatal(err)
	}
	for i := range benchmarkFleet {
		if err := e.Set(benchmarkTarget(i, interval)); err != nil {
			b.Fatal(err)
		}
	}
	return e
}

// BenchmarkIdleTick is what the engine does each second when nothing is due.
func BenchmarkIdleTick(b *testing.B) {
	start := time.Now()
	e := benchmarkEngine(b, 24*time.Hour)
	for b.Loop() {
		if _, due := e.lateness(start); due {
			b.Fatal("something is due")
		}
	}
}

// BenchmarkEngineProbe is what a probe costs beyond the prober, in a fleet where everything is due.
func BenchmarkEngineProbe(b *testing.B) {
	e := benchmarkEngine(b, time.Nanosecond)
	for b.Loop() {
		ctx, p, _ := e.take(b.Context())
		e.finish(b.Context(), p, e.probe(ctx, p.target))
	}
}

// BenchmarkBytesPerTarget is what the engine keeps of a target, the target's own strings included.
func BenchmarkBytesPerTarget(b *testing.B) {
	var before, after runtime.MemStats
	var bytes uint64
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		e := benchmarkEngine(b, time.Minute)
		runtime.GC()
		runtime.ReadMemStats(&after)
		bytes = after.HeapAlloc - before.HeapAlloc
		runtime.KeepAlive(e)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(bytes)/benchmarkFleet, "bytes/target")
}
