package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRanking puts many proxies into a ranking, moves them about and takes them out again. The order must always be that
// of a sorted list, in runs that are neither empty nor too long.
func TestRanking(t *testing.T) {
	for _, row := range []struct {
		name  string
		ranks uint64 // how many there are: with one, keys alone decide
	}{
		{"all different", 1 << 40},
		{"a few", 5},
		{"all the same", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, row.ranks))
			var r ranking
			var in, out []*member
			for i := range 2000 {
				out = append(out, &member{candidate: &Candidate{Key: fmt.Sprint(i)}})
			}
			take := func(from *[]*member) *member {
				i := random.IntN(len(*from))
				p := (*from)[i]
				*from = slices.Delete(*from, i, i+1)
				return p
			}
			for step := range 20_000 {
				filling := step%8000 < 4000
				if len(out) > 0 && (len(in) == 0 || filling == (random.IntN(4) > 0)) {
					p := take(&out)
					p.rank = Rank{A: random.Uint64N(row.ranks), B: random.Uint64N(row.ranks)}
					r.insert(p)
					in = append(in, p)
				} else {
					p := take(&in)
					r.remove(p)
					out = append(out, p)
				}
				if step%100 == 0 {
					checkRanking(t, &r, in)
				}
			}
			for len(in) > 0 {
				r.remove(take(&in))
			}
			checkRanking(t, &r, nil)
		})
	}
}

func checkRanking(t *testing.T, r *ranking, want []*member) {
	t.Helper()
	want = slices.SortedFunc(slices.Values(want), (*member).compare)
	if got := slices.Collect(r.all()); !slices.Equal(got, want) {
		t.Fatalf("%d proxies are not in order", len(want))
	}
	for _, run := range r.runs {
		if len(run) == 0 || len(run) > runLength {
			t.Fatalf("a run has %d proxies", len(run))
		}
	}
	for first := range r.all() {
		if first != want[0] {
			t.Fatal("the first proxy is not the first")
		}
		break
	}
}
