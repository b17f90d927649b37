package house

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestState(t *testing.T) {
	s := loadSource(t)
	for _, folder := range s.folders {
		if matches(suites, "./"+folder.path) {
			continue // Suites are tests, and tests have tables of cases.
		}
		for _, problem := range s.stateProblems(folder) {
			t.Error(problem)
		}
	}
}

// stateProblems says where a package acts before anybody calls it, or shares state between all who use it. Two fleets in
// one process, or two tests at once, must not meet in a variable, and importing a package must change nothing. So there
// are no init functions, and a package-level variable is one of:
//
//   - the blank one, which asserts at compile time that a type fulfils an interface;
//   - an embedded file;
//   - a sentinel error that is a literal of an error type, which is nobody's to change;
//   - what whoever gets it cannot change: the result of one of the calls in immutable, or an array, which is copied.
//
// A table that would be a map or a slice is a switch or a function that returns it.
func (s *source) stateProblems(f *folder) []string {
	var problems []string
	for _, file := range f.production() {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					problems = append(problems, s.at(d)+": an init function acts before anybody asked: do it in a constructor")
				}
			case *ast.GenDecl:
				for _, name := range variables(d) {
					problems = append(problems, s.at(name)+": "+name.Name+" is state that everybody shares: put it into a value that somebody makes")
				}
			}
		}
	}
	return problems
}

// immutable says of which calls the results cannot be changed by those who get them.
func immutable(call string) bool {
	switch call {
	case "errors.New", "fmt.Errorf", "regexp.MustCompile", "netip.MustParsePrefix", "netip.MustParseAddr":
		return true
	}
	return false
}

// variables returns the names of those variables of a declaration that may not stand at package level.
func variables(d *ast.GenDecl) []*ast.Ident {
	if d.Tok != token.VAR || isEmbedded(d.Doc) {
		return nil
	}
	var names []*ast.Ident
	for _, spec := range d.Specs {
		spec := spec.(*ast.ValueSpec)
		for i, name := range spec.Names {
			if name.Name == "_" || isEmbedded(spec.Doc) {
				continue
			}
			if i >= len(spec.Values) || !isConstant(spec.Values[i]) && !isSentinel(name.Name, spec.Values[i]) {
				names = append(names, name)
			}
		}
	}
	return names
}

func isConstant(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.CallExpr:
		if fn, ok := v.Fun.(*ast.SelectorExpr); ok {
			pkg, ok := fn.X.(*ast.Ident)
			return ok && immutable(pkg.Name+"."+fn.Sel.Name)
		}
	case *ast.CompositeLit:
		array, ok := v.Type.(*ast.ArrayType)
		return ok && array.Len != nil
	}
	return false
}

func isSentinel(name string, value ast.Expr) bool {
	if pointer, ok := value.(*ast.UnaryExpr); ok && pointer.Op == token.AND {
		value = pointer.X
	}
	literal, ok := value.(*ast.CompositeLit)
	if !ok || !strings.HasPrefix(name, "err") && !strings.HasPrefix(name, "Err") {
		return false
	}
	switch literal.Type.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		return true
	}
	return false
}

func isEmbedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, comment := range doc.List {
		if strings.HasPrefix(comment.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

func TestStateProblems(t *testing.T) {
	const text = `package p

var _ I = (*T)(nil)

var (
	ErrGone = errors.New("gone")
	ErrLost = fmt.Errorf("lost: %w", ErrGone)
	label   = regexp.MustCompile("^[a-z]$")
	space   = [...]byte{1, 2}
	errBusy = &apiError{Status: 503}
)

//go:embed page.html
var page string

var (
	//go:embed all:files
	files embed.FS
)

func (T) init() {}

func init() {}
var count int
var table = map[string]int{}
var list = []string{"a"}
var a, ErrB, c = 1, errors.New("b"), new(T)
var once sync.Once
var made = New()
var x, y = pair()
var defaults = &Config{}
var errTable = map[string]int{}
`
	want := []string{
		"a.go:23: an init function acts before anybody asked: do it in a constructor",
		"a.go:24: count is state that everybody shares: put it into a value that somebody makes",
		"a.go:25: table is state that everybody shares: put it into a value that somebody makes",
		"a.go:26: list is state that everybody shares: put it into a value that somebody makes",
		"a.go:27: a is state that everybody shares: put it into a value that somebody makes",
		"a.go:27: c is state that everybody shares: put it into a value that somebody makes",
		"a.go:28: once is state that everybody shares: put it into a value that somebody makes",
		"a.go:29: made is state that everybody shares: put it into a value that somebody makes",
		"a.go:30: x is state that everybody shares: put it into a value that somebody makes",
		"a.go:30: y is state that everybody shares: put it into a value that somebody makes",
		"a.go:31: defaults is state that everybody shares: put it into a value that somebody makes",
		"a.go:32: errTable is state that everybody shares: put it into a value that somebody makes",
	}
	s, folder := snippet(t, map[string]string{"a.go": text, "a_test.go": "package p\n\nvar count int\n"})
	if diff := cmp.Diff(want, s.stateProblems(folder)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
