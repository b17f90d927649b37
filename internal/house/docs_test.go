package house

import (
	"fmt"
	"go/ast"
	"path"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestDocs(t *testing.T) {
	s := loadSource(t)
	for _, folder := range s.folders {
		for _, problem := range s.docProblems(folder) {
			t.Error(problem)
		}
	}
}

// docProblems says where a package does not document itself. Each package has one package comment: with two, only the
// order of file names decides what a reader sees first. Each exported name has a comment that begins with it, so that a
// line of documentation found by searching says what it speaks of. In a group of constants or variables one comment may
// speak for all, a struct's for its fields, and that of an interface for its only method; where an interface has more, each
// is a contract of its own.
func (s *source) docProblems(f *folder) []string {
	files := f.production()
	if len(files) == 0 {
		return nil
	}
	problems := packageDocProblems(f.path, files)
	for _, file := range files {
		for _, decl := range file.Decls {
			for _, p := range declProblems(decl) {
				problems = append(problems, s.at(p.node)+": "+p.what)
			}
		}
	}
	return problems
}

func packageDocProblems(folder string, files []*file) []string {
	var with []string
	var problems []string
	for _, file := range files {
		if file.Doc == nil {
			continue
		}
		with = append(with, path.Base(file.path))
		// Commands are described as whoever calls them knows them.
		if name := file.Name.Name; name != "main" && !beginsWith(file.Doc, "Package "+name) {
			problems = append(problems, fmt.Sprintf("%s: the package comment does not begin with %q", file.path, "Package "+name))
		}
	}
	if len(with) == 0 {
		problems = append(problems, folder+": the package has no package comment")
	} else if len(with) > 1 {
		problems = append(problems, fmt.Sprintf("%s: the package has more than one package comment: %s", folder, strings.Join(with, ", ")))
	}
	return problems
}

// undocumented is a declaration without a proper comment.
type undocumented struct {
	node ast.Node
	what string
}

func declProblems(decl ast.Decl) []undocumented {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if of := receiver(d); d.Name.IsExported() && (of == "" || ast.IsExported(of)) {
			return nameProblem(d.Name, d.Doc)
		}
	case *ast.GenDecl:
		var problems []undocumented
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				problems = append(problems, typeProblems(d, spec)...)
			case *ast.ValueSpec:
				problems = append(problems, valueProblems(d, spec)...)
			}
		}
		return problems
	}
	return nil
}

func typeProblems(d *ast.GenDecl, spec *ast.TypeSpec) []undocumented {
	if !spec.Name.IsExported() {
		return nil
	}
	doc := spec.Doc
	if doc == nil && !d.Lparen.IsValid() {
		doc = d.Doc
	}
	problems := nameProblem(spec.Name, doc)
	contract, ok := spec.Type.(*ast.InterfaceType)
	if !ok || contract.Methods.NumFields() == 1 {
		return problems
	}
	for _, method := range contract.Methods.List {
		for _, name := range method.Names {
			if name.IsExported() && method.Doc == nil && method.Comment == nil {
				problems = append(problems, undocumented{name, spec.Name.Name + "." + name.Name + " has no comment"})
			}
		}
	}
	return problems
}

func valueProblems(d *ast.GenDecl, spec *ast.ValueSpec) []undocumented {
	grouped := len(d.Specs) > 1
	var problems []undocumented
	for _, name := range spec.Names {
		switch {
		case !name.IsExported():
		case !grouped && spec.Doc == nil:
			problems = append(problems, nameProblem(name, d.Doc)...)
		case !grouped:
			problems = append(problems, nameProblem(name, spec.Doc)...)
		case d.Doc == nil && spec.Doc == nil && spec.Comment == nil:
			problems = append(problems, undocumented{name, name.Name + " has no comment, and neither has its group"})
		}
	}
	return problems
}

func nameProblem(name *ast.Ident, doc *ast.CommentGroup) []undocumented {
	if doc == nil || doc.Text() == "" {
		return []undocumented{{name, name.Name + " has no comment"}}
	}
	if !beginsWith(doc, name.Name) {
		return []undocumented{{name, "the comment of " + name.Name + " does not begin with the name"}}
	}
	return nil
}

// beginsWith says whether a comment's first words are these, an article before them aside.
func beginsWith(doc *ast.CommentGroup, words string) bool {
	text := doc.Text()
	for _, article := range []string{"A ", "An ", "The "} {
		text = strings.TrimPrefix(text, article)
	}
	rest, ok := strings.CutPrefix(text, words)
	return ok && strings.IndexFunc(rest, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }) != 0
}

func TestDocProblems(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{
			name: "well documented",
			files: map[string]string{
				"a.go": `
// Package good is good.
package good

// The Shape is one.
type Shape interface {
	// Area is in square metres.
	Area() float64
	Name() string // for people
	hidden()
}

// Kinds of shapes.
const (
	Round = iota
	Square
)

const (
	Small = 1 // below ten
	// Large is above.
	Large = 10
)

// ErrFlat says that a shape has no area.
var ErrFlat = error(nil)

// New makes one.
func New() Shape { return nil }

type hidden struct{}

func (hidden) Area() float64 { return 0 }
`,
				"a_test.go":    "package good\n\nfunc Exported() {}\n",
				"generated.go": "// Code generated by hand. DO NOT EDIT.\n\npackage good\n\nfunc Generated() {}\n",
			},
		},
		{
			name:  "a command",
			files: map[string]string{"main.go": "// Goodtool does good.\npackage main\n\nfunc main() {}\n"},
		},
		{
			name:  "only tests",
			files: map[string]string{"a_test.go": "package good\n"},
		},
		{
			name:  "no package comment",
			files: map[string]string{"a.go": "package bad\n", "b.go": "// A licence.\n\npackage bad\n"},
			want:  []string{"snippet: the package has no package comment"},
		},
		{
			name:  "two package comments",
			files: map[string]string{"a.go": "// Package bad is bad.\npackage bad\n", "b.go": "// Package bad is worse.\npackage bad\n"},
			want:  []string{"snippet: the package has more than one package comment: a.go, b.go"},
		},
		{
			name:  "another name in the package comment",
			files: map[string]string{"a.go": "// Package badly is bad.\npackage bad\n"},
			want:  []string{`a.go: the package comment does not begin with "Package bad"`},
		},
		{
			name: "missing and misnamed comments",
			files: map[string]string{"a.go": `// Package bad is bad.
package bad

type Naked struct{}
func (*Naked) Method() {}
func Naked2() {}
// Makes one.
func New() {}
// Newest makes one.
func Newer() {}

//go:noinline
func Directive() {}

// Shape is one.
type Shape[T any] interface {
	Area() T
	Sides() int // straight ones
}
// Only is all there is.
type Only interface { Method() }
func (Shape[T]) Generic() {}
var Value = 1
// something
const Constant = 1
const (
	Round = 1
	// Square has corners.
	Square = 2
)
// Types of things.
type (
	Grouped struct{}
)
`},
			want: []string{
				"a.go:4: Naked has no comment",
				"a.go:5: Method has no comment",
				"a.go:6: Naked2 has no comment",
				"a.go:8: the comment of New does not begin with the name",
				"a.go:10: the comment of Newer does not begin with the name",
				"a.go:13: Directive has no comment",
				"a.go:17: Shape.Area has no comment",
				"a.go:22: Generic has no comment",
				"a.go:23: Value has no comment",
				"a.go:25: the comment of Constant does not begin with the name",
				"a.go:27: Round has no comment, and neither has its group",
				"a.go:33: Grouped has no comment",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, folder := snippet(t, test.files)
			if diff := cmp.Diff(test.want, s.docProblems(folder)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
