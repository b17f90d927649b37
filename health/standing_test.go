package health

import (
	"testing"
	"time"
)

// TestOwedVerdictIsShownWithItsProof has a verdict turn that cannot be told, and a result against it before it is.
func TestOwedVerdictIsShownWithItsProof(t *testing.T) {
	s := standing{successThreshold: 2, failureThreshold: 1}
	s.add(Result{OK: true})
	s.add(Result{OK: true, Latency: time.Second})
	s.tell(time.Unix(0, 0))
	s.add(Result{Party: PartyDial})
	s.add(Result{OK: true, Latency: time.Minute})
	want := Snapshot{Verdict: Unhealthy, Reported: Result{Party: PartyDial}, Last: Result{OK: true, Latency: time.Minute}}
	if got := s.snapshot(); got != want {
		t.Errorf("while it is owed: %+v, want %+v", got, want)
	}
	if !s.news(time.Unix(1, 0), time.Hour) {
		t.Error("what is owed is no news any more")
	}
	s.tell(time.Unix(1, 0))
	if got := s.snapshot(); got != want {
		t.Errorf("once it is told: %+v, want %+v", got, want)
	}
}
