package providertest

import "testing"

// Run runs the suite. It calls newHarness once for each case.
func Run(t *testing.T, newHarness func(t testing.TB) Harness) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, newHarness(t)) })
	}
}

// testCase is one promise of the contract.
type testCase struct {
	name string
	// explanation is the promise in words. It is printed when the case fails.
	explanation string
	check       func(*bench)
}

func (c testCase) run(t testing.TB, h Harness) {
	b := &bench{TB: t, Harness: h.withDefaults()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("What was expected: %s.", c.explanation)
		}
	})
	b.open(ours)
	c.check(b)
	b.close()
}
