package house

import (
	"go/ast"
	"slices"
	"strings"
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
// machine and fail on a slow one, and waits for an event instead. A file that does not import synctest has no bubbles,
// unless it has no tests either: then it helps those of its folder.
func (s *source) sleepProblems(f *folder) []string {
	var problems []string
	inBubbles := slices.ContainsFunc(f.files, bubbles)
	for _, file := range f.files {
		if file.isTest() && (bubbles(file) || inBubbles && !hasTests(file)) {
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

func bubbles(f *file) bool {
	return slices.ContainsFunc(f.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == `"testing/synctest"` })
}

func hasTests(f *file) bool {
	return slices.ContainsFunc(f.Decls, func(decl ast.Decl) bool {
		fn, ok := decl.(*ast.FuncDecl)
		return ok && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz"))
	})
}

func TestSleepProblems(t *testing.T) {
	const (
		sleeper = "func f() { time.Sleep(1) }\n"
		test    = "func TestF() {}\n"
		wait    = ": time.Sleep cannot be ended: wait for the event itself, or for a timer and the context"
	)
	tests := []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{
			name: "production",
			files: map[string]string{
				"a.go":      "package p\n\n" + sleeper,
				"b.go":      "package p\n\nfunc g() { bed.Sleep(1) }\n",
				"a_test.go": "package p\n\nimport \"testing/synctest\"\n",
			},
			want: []string{"a.go:3" + wait},
		},
		{
			name: "tests of a folder with bubbles",
			files: map[string]string{
				"a_test.go": "package p\n\nimport \"testing/synctest\"\n\n" + sleeper + test,
				"b_test.go": "package p\n\n" + sleeper,
				"c_test.go": "package p\n\n" + sleeper + test,
			},
			want: []string{"c_test.go:3" + wait},
		},
		{
			name:  "tests of a folder without bubbles",
			files: map[string]string{"a_test.go": "package p\n\n" + sleeper},
			want:  []string{"a_test.go:3" + wait},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, folder := snippet(t, test.files)
			if diff := cmp.Diff(test.want, s.sleepProblems(folder)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
