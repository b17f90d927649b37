package walk

import (
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/proxyfleet/fleet"
)

var (
	calm      = nature{fault: 0.1}
	rough     = nature{fault: 0.1, late: 3, lag: 3, fail: 0.1, crash: 0.1}
	denied    = nature{fault: 0.1, late: 3, lag: 3, fail: 0.1, crash: 0.1, deny: 0.02}
	inProcess = nature{fault: 0.1, crash: 0.05, local: true}
)

// base is what every history starts from.
func base(change func(*setting)) setting {
	s := setting{nature: calm, proxies: 1, leaders: 1, stale: 3, edits: "all", steps: 800, machine: real}
	change(&s)
	return s
}

// innocent are the kinds of histories that the machine must come through without a flaw.
var innocent = map[string]setting{
	"calm":                          base(func(*setting) {}),
	"calm, fresh reads":             base(func(s *setting) { s.stale = 0 }),
	"rough":                         base(func(s *setting) { s.nature = rough }),
	"rough, two leaders":            base(func(s *setting) { s.nature, s.leaders = rough, 2 }),
	"rough, two leaders, same UIDs": base(func(s *setting) { s.nature, s.leaders, s.stable = rough, 2, true }),
	"rough, two leaders, skew":      base(func(s *setting) { s.nature, s.leaders, s.skew = rough, 2, 2 }),
	"rough, two leaders, proxies":   base(func(s *setting) { s.nature, s.leaders, s.proxies, s.steps = rough, 2, 3, 1600 }),
	"quick, two leaders":            base(func(s *setting) { s.nature, s.leaders, s.quick, s.steps, s.edits = rough, 2, true, 2000, "type" }),
	"permanent Get":                 base(func(s *setting) { s.nature, s.leaders = denied, 2 }),
	"image transfers":               base(func(s *setting) { s.nature = rough; s.fetch = 0.5 }),
	"in one process, over restarts": base(func(s *setting) { s.nature, s.stable, s.stale = inProcess, true, 0 }),
	"paced": base(func(s *setting) {
		s.nature, s.proxies, s.paced, s.stable, s.stale, s.steps = nature{}, 10, true, true, 0, 1200
	}),
}

// histories is how many each kind walks; WALK asks for more.
func histories() int {
	if n, err := strconv.Atoi(os.Getenv("WALK")); err == nil {
		return n
	}
	return 300
}

// run walks one history in a bubble of its own.
func run(t *testing.T, seed uint64, s setting, hasher *fleet.Hasher, trace func(string, ...any)) (result tally) {
	synctest.Test(t, func(*testing.T) { result = walk(seed, s, hasher, trace) })
	return result
}

func TestInnocent(t *testing.T) {
	hasher := fleet.NewHasher(fleetID)
	for name, s := range innocent {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum := tally{}
			for seed := range uint64(histories()) {
				one := run(t, seed, s, hasher, nil)
				sum.add(one)
				if one.flaws() > 0 {
					t.Errorf("seed %d: %v", seed, one)
					run(t, seed, s, hasher, t.Logf)
					return
				}
			}
			t.Logf("%d histories, %v", histories(), sum)
		})
	}
}
