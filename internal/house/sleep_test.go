package house

import (
	"go/ast"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSleep(t *testing.T) {
	s := loadSource(t)
	for _, folder := range s.folders {
		for _, problem := range s.sleepProblems(folder) {
			t.Error(problem)
		}
	}
}

// sleepProblems finds sleepers. Production code never sleeps: nothing can end a sleep, a timer in a select ends with its
// context. A test sleeps only in a bubble of testing/synctest, where time is free; elsewhere it would be slow on a fast
// machine and fail on a slow one, and waits for an event instead. A file that does not import synctest has no bubbles.
func (s *source) sleepProblems(f *folder) []string {
	var problems []string
	for _, file := range f.files {
		if file.isTest() && imports(file, "testing/synctest") {
			continue
		}
		ast.Inspect(file.File, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
				problems = append(problems, s.at(sel)+": time.Sleep cannot be ended: wait for the event itself, or for a timer and the context")
			}
			return true
		})
	}
	return problems
}

func imports(f *file, path string) bool {
	for _, spec := range f.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil && p == path {
			return true
		}
	}
	return false
}

func TestSleepProblems(t *testing.T) {
	const sleeper = "func f() { time.Sleep(1) }\n"
	s, folder := snippet(t, map[string]string{
		"a.go":      "package p\n\n" + sleeper,
		"b.go":      "package p\n\nfunc g() { bed.Sleep(1) }\n",
		"a_test.go": "package p\n\n" + sleeper,
		"b_test.go": "package p\n\nimport \"testing/synctest\"\n\n" + sleeper,
	})
	const wait = ": time.Sleep cannot be ended: wait for the event itself, or for a timer and the context"
	want := []string{"a.go:3" + wait, "a_test.go:3" + wait}
	if diff := cmp.Diff(want, s.sleepProblems(folder)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
