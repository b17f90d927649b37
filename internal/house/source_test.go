package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// module is the import path of this module.
	module = "github.com/proxyfleet/fleet"
	// root is the folder of this module, seen from this package.
	root = "../.."
)

// source is the Go code of a module.
type source struct {
	fset    *token.FileSet
	folders []*folder
}

// folder is a directory that holds Go files: a package with its tests.
type folder struct {
	path  string // from the root of the module, with slashes
	files []*file
}

// file is a parsed Go file.
type file struct {
	*ast.File
	path string // from the root of the module, with slashes
}

// production returns the files that are neither tests nor generated.
func (f *folder) production() []*file {
	var files []*file
	for _, file := range f.files {
		if !file.isTest() && !ast.IsGenerated(file.File) {
			files = append(files, file)
		}
	}
	return files
}

func (f *file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// at says where a node stands, for a person.
func (s *source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", filepath.ToSlash(p.Filename), p.Line)
}

// loadSource parses every Go file of this module, whatever its build constraints. It reads the files in this process, so
// that go test knows what it has looked at and never answers from its cache after a change.
func loadSource(t *testing.T) *source {
	t.Helper()
	s := &source{fset: token.NewFileSet()}
	module := os.DirFS(root)
	err := fs.WalkDir(module, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if path != "." && !holdsPackages(module, path) {
			return fs.SkipDir
		}
		return s.parseFolder(module, path)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// holdsPackages says whether a folder belongs to the module, by the rules of the go command.
func holdsPackages(module fs.FS, path string) bool {
	name := filepath.Base(path)
	if name[0] == '.' || name[0] == '_' || name == "testdata" || name == "vendor" {
		return false
	}
	_, err := fs.Stat(module, path+"/go.mod")
	return err != nil
}

func (s *source) parseFolder(module fs.FS, path string) error {
	names, err := fs.Glob(module, path+"/*.go")
	if err != nil || len(names) == 0 {
		return err
	}
	f := &folder{path: path}
	for _, name := range names {
		text, err := fs.ReadFile(module, name)
		if err != nil {
			return err
		}
		if err := f.parse(s.fset, strings.TrimPrefix(name, "./"), string(text)); err != nil {
			return err
		}
	}
	s.folders = append(s.folders, f)
	return nil
}

func (f *folder) parse(fset *token.FileSet, path, text string) error {
	syntax, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f.files = append(f.files, &file{syntax, path})
	return nil
}

// snippet makes the source of one package from the texts of its files, for the tests of the checks themselves.
func snippet(t *testing.T, texts map[string]string) (*source, *folder) {
	t.Helper()
	s, f := &source{fset: token.NewFileSet()}, &folder{path: "snippet"}
	for _, path := range sortedKeys(texts) {
		if err := f.parse(s.fset, path, texts[path]); err != nil {
			t.Fatal(err)
		}
	}
	s.folders = []*folder{f}
	return s, f
}

// receiver is the name of the type that a method belongs to, or "" for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

func TestLoadSource(t *testing.T) {
	found := map[string]bool{}
	for _, folder := range loadSource(t).folders {
		for _, file := range folder.files {
			found[file.path] = true
		}
	}
	for _, path := range []string{"secret/text.go", "secret/text_test.go", "internal/house/doc.go"} {
		if !found[path] {
			t.Errorf("%s was not read", path)
		}
	}
}
