package health

import "time"

// minLatencyStep is the least change of latency that is news. The relative part of the rule alone would report a proxy
// near zero milliseconds for ever.
const minLatencyStep = 20 * time.Millisecond

// standing is what the probes of one incarnation add up to, and what of it was told. It knows no locks and no schedule.
type standing struct {
	verdict          Verdict
	passed, failed   int    // results in a row; one of them is zero
	last             Result // the newest result
	proof            Result // the newest result that agrees with the verdict
	told             Verdict
	toldProof        Result
	toldAt           time.Time
	successThreshold int
	failureThreshold int
}

// seeded is the standing of a target whose verdict an earlier process reached and told. Its counters are zero.
func seeded(v Verdict, latency time.Duration) standing {
	if v == Unknown {
		return standing{}
	}
	r := Result{OK: v == Healthy, Latency: latency}
	return standing{verdict: v, proof: r, told: v, toldProof: r}
}

// add counts a result and says whether the verdict turned.
func (s *standing) add(r Result) (turned bool) {
	s.last = r
	before := s.verdict
	if r.OK {
		s.passed, s.failed = s.passed+1, 0
		if s.passed >= s.successThreshold {
			s.verdict = Healthy
		}
	} else {
		s.passed, s.failed = 0, s.failed+1
		if s.failed >= s.failureThreshold {
			s.verdict = Unhealthy
		}
	}
	if s.lastAgrees() {
		s.proof = r
	}
	return s.verdict != before
}

// lastAgrees says whether the newest result bears the verdict out.
func (s *standing) lastAgrees() bool {
	return s.last.OK && s.verdict == Healthy || !s.last.OK && s.verdict == Unhealthy
}

// owed says whether a verdict is yet to be told.
func (s *standing) owed() bool { return s.verdict != s.told }

// news says whether there is something to tell. A verdict is told at once; a moved latency of a healthy proxy and a changed
// reason of an unhealthy one wait until pause has passed since anything was told.
func (s *standing) news(now time.Time, pause time.Duration) bool {
	if s.owed() {
		return true
	}
	if !s.lastAgrees() || now.Sub(s.toldAt) < pause {
		return false
	}
	if s.verdict == Healthy {
		moved := (s.last.Latency - s.toldProof.Latency).Abs()
		return moved > max(minLatencyStep, s.toldProof.Latency/2)
	}
	return s.last.Party != s.toldProof.Party
}

// tell notes that everything was told.
func (s *standing) tell(now time.Time) {
	s.told, s.toldProof, s.toldAt = s.verdict, s.proof, now
}

// Snapshot is what the engine knows of one incarnation of a target.
type Snapshot struct {
	// Verdict is the verdict now.
	Verdict Verdict
	// Reported is the result to show beside Verdict. It moves only when the engine has something to tell, so that whoever
	// writes it down on every look writes seldom. While the verdict is Unknown it is zero; while it is a seed, only OK and
	// Latency are known.
	Reported Result
	// Last is the newest result, whatever it was; zero before the first.
	Last Result
}

func (s *standing) snapshot() Snapshot {
	reported := s.toldProof
	if s.owed() {
		// The verdict turned but the channel was full. Who looks now must not see it beside the result of the old one.
		reported = s.proof
	}
	return Snapshot{Verdict: s.verdict, Reported: reported, Last: s.last}
}
