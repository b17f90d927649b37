package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// graph holds what each package imports. A package of this module is named by its folder, as in "./proxy", and the root
// package is ".". Every other package has its import path.
type graph map[string][]string

// rules say who may import whom. In them, "..." at the end of a name stands for the package and all below it.
type rules struct {
	rows []row
	bans []ban
	// later names packages of the house that are not built yet. A rule that names any other package that does not exist is a
	// mistake in the rule.
	later []string
}

// row says what a package may import directly beyond the standard library.
type row struct {
	pkg string // names, separated by blanks
	may string // names, separated by blanks
	why string
}

// ban says what some packages must not depend on, not even by way of others.
type ban struct {
	who    string // names, separated by blanks
	except string // names, separated by blanks
	never  string // names, separated by blanks
	why    string
}

// problems returns all that is wrong with a graph, and all that is wrong with the rules themselves.
func (r rules) problems(g graph) []string {
	var problems []string
	for _, pkg := range sortedKeys(g) {
		if isOwn(pkg) {
			problems = append(problems, r.rowProblems(g, pkg)...)
			problems = append(problems, r.banProblems(g, pkg)...)
		}
	}
	return append(problems, r.nameProblems(g)...)
}

func (r rules) rowProblems(g graph, pkg string) []string {
	i := slices.IndexFunc(r.rows, func(row row) bool { return matches(row.pkg, pkg) })
	if i < 0 {
		return []string{pkg + " has no row: say what it may import, and why"}
	}
	row := r.rows[i]
	var problems []string
	for _, imported := range g[pkg] {
		if !isStandard(imported) && !matches(row.may, imported) {
			problems = append(problems, fmt.Sprintf("%s must not import %s: %s", pkg, imported, row.why))
		}
	}
	return problems
}

func (r rules) banProblems(g graph, pkg string) []string {
	var problems []string
	for _, ban := range r.bans {
		if !matches(ban.who, pkg) || matches(ban.except, pkg) {
			continue
		}
		for never := range strings.FieldsSeq(ban.never) {
			if chain := g.chain(pkg, never); chain != nil {
				problems = append(problems, fmt.Sprintf("%s must not depend on %s (%s): %s", pkg, never, strings.Join(chain, " → "), ban.why))
			}
		}
	}
	return problems
}

// nameProblems finds rules about packages that do not exist, so that a slip of the pen in a rule cannot pass for a rule
// that holds.
func (r rules) nameProblems(g graph) []string {
	var names []string
	for _, row := range r.rows {
		names = append(names, row.pkg+" "+row.may)
	}
	for _, ban := range r.bans {
		names = append(names, ban.who+" "+ban.except+" "+ban.never)
	}
	known := slices.Concat(slices.Collect(maps.Keys(g)), r.later)
	var problems []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(strings.Fields(strings.Join(names, " "))))) {
		if isOwn(name) && !slices.ContainsFunc(known, func(pkg string) bool { return matches(name, pkg) }) {
			problems = append(problems, "a rule names "+name+", which does not exist")
		}
	}
	for _, name := range r.later {
		if _, built := g[name]; built {
			problems = append(problems, name+" is built: it is not for later any more")
		}
	}
	return problems
}

// chain is a shortest way from a package along its imports to one that matches the name, or nil.
func (g graph) chain(from, name string) []string {
	seen := map[string]bool{from: true}
	for queue := [][]string{{from}}; len(queue) > 0; queue = queue[1:] {
		for _, next := range g[queue[0][len(queue[0])-1]] {
			if seen[next] {
				continue
			}
			seen[next] = true
			way := append(slices.Clone(queue[0]), next)
			if matches(name, next) {
				return way
			}
			queue = append(queue, way)
		}
	}
	return nil
}

// matches says whether one of the names stands for the package.
func matches(names, pkg string) bool {
	return slices.ContainsFunc(strings.Fields(names), func(name string) bool {
		above, deep := strings.CutSuffix(name, "...")
		return name == pkg || deep && strings.HasPrefix(pkg+"/", above)
	})
}

func isOwn(pkg string) bool { return pkg == "." || strings.HasPrefix(pkg, "./") }

// isStandard goes by the rule of the go command: import paths of modules begin with something like a host name.
func isStandard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".")
}

// loadGraph asks the go command for every package of this module and all that they depend on, tests left out.
func loadGraph(t *testing.T) graph {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	g := graph{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&pkg); err == io.EOF {
			return g
		} else if err != nil {
			t.Fatal(err)
		}
		for i, imported := range pkg.Imports {
			pkg.Imports[i] = short(imported)
		}
		g[short(pkg.ImportPath)] = pkg.Imports
	}
}

// short turns an import path into a name of a graph.
func short(path string) string {
	if path == module {
		return "."
	}
	if below, ok := strings.CutPrefix(path, module+"/"); ok {
		return "./" + below
	}
	return path
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func TestRules(t *testing.T) {
	base := rules{
		rows: []row{
			{"./base", "", "it is the base"},
			{"./leaf", "./base example.com/light", "it is a leaf"},
			{"./cmd/...", "...", "it joins everything"},
		},
		bans: []ban{
			{who: "./base", never: "...", why: "it imports nothing"},
			{who: "./...", except: "./cmd/...", never: "example.com/heavy/... testing", why: "it is heavy"},
		},
		later: []string{"./later"},
	}
	tests := []struct {
		name  string
		graph graph
		edit  func(*rules)
		want  []string
	}{
		{
			name: "a house in order",
			graph: graph{
				"./leaf":            {"./base", "example.com/light", "fmt"},
				"./cmd/tool":        {"./leaf", "example.com/heavy"},
				"example.com/light": {"example.com/lighter"},
			},
		},
		{
			name:  "an edge between leaves that no row allows",
			graph: graph{"./leaf": {"./base", "./cmd/tool"}, "./cmd/tool": nil},
			want:  []string{"./leaf must not import ./cmd/tool: it is a leaf"},
		},
		{
			name:  "a package below an allowed one is another package",
			graph: graph{"./leaf": {"example.com/light/sub", "example.com/lightish"}, "./cmd/tool": nil},
			want: []string{
				"./leaf must not import example.com/light/sub: it is a leaf",
				"./leaf must not import example.com/lightish: it is a leaf",
			},
		},
		{
			name:  "the standard library is an import too",
			graph: graph{"./leaf": nil, "./base": {"unsafe"}, "./cmd/tool": nil},
			want:  []string{"./base must not depend on ... (./base → unsafe): it imports nothing"},
		},
		{
			name: "a banned package at third hand, by the shortest way",
			graph: graph{
				"./leaf":               {"example.com/light"},
				"./cmd/tool":           nil,
				"example.com/light":    {"example.com/long", "example.com/short"},
				"example.com/long":     {"example.com/longer"},
				"example.com/longer":   {"example.com/heavy/sub"},
				"example.com/short":    {"example.com/heavy/sub", "example.com/light"},
				"example.com/heavyish": nil,
			},
			want: []string{"./leaf must not depend on example.com/heavy/... (./leaf → example.com/light → example.com/short → example.com/heavy/sub): it is heavy"},
		},
		{
			name:  "testing in production",
			graph: graph{"./leaf": {"testing"}, "./cmd/tool": nil},
			want:  []string{"./leaf must not depend on testing (./leaf → testing): it is heavy"},
		},
		{
			name:  "a package without a row",
			graph: graph{"./leaf": nil, "./cmd/tool": nil, "./new": nil},
			want:  []string{"./new has no row: say what it may import, and why"},
		},
		{
			name:  "the root without a row",
			graph: graph{"./leaf": nil, "./cmd/tool": nil, ".": nil},
			want:  []string{". has no row: say what it may import, and why"},
		},
		{
			name:  "rules about packages that do not exist",
			graph: graph{"./leaf": nil, "./cmd/tool": nil},
			edit: func(r *rules) {
				r.rows = append(r.rows, row{"./laef", "./bsae", ""}, row{"./later", "", ""})
				r.bans = append(r.bans, ban{who: "./tpyo", except: "./cdm/...", never: "./lief"})
			},
			want: []string{
				"a rule names ./bsae, which does not exist",
				"a rule names ./cdm/..., which does not exist",
				"a rule names ./laef, which does not exist",
				"a rule names ./lief, which does not exist",
				"a rule names ./tpyo, which does not exist",
			},
		},
		{
			name:  "a package that was for later and is built",
			graph: graph{"./leaf": nil, "./cmd/tool": nil, "./later": nil},
			edit:  func(r *rules) { r.rows = append(r.rows, row{"./later", "", ""}) },
			want:  []string{"./later is built: it is not for later any more"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rules := base
			if test.edit != nil {
				test.edit(&rules)
			}
			if _, ok := test.graph["./base"]; !ok {
				test.graph["./base"] = nil
			}
			if diff := cmp.Diff(test.want, rules.problems(test.graph)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
