package house

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a status says in one word is explained on the page for operators: each phase, each condition and each reason.
func TestWordsAreExplained(t *testing.T) {
	s := loadSource(t)
	var words []string
	for _, folder := range s.folders {
		if slices.Contains([]string{".", "proxy", "controller"}, folder.path) {
			words = append(words, folder.words()...)
		}
	}
	if len(words) < 25 {
		t.Fatalf("found only the words %q", words)
	}
	page, err := os.ReadFile(root + "/docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range words {
		if !strings.Contains(string(page), "`"+word+"`") {
			t.Errorf("docs/kubernetes.md does not say what `%s` means", word)
		}
	}
}

var camelCase = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// words are the phases, conditions and reasons among the constants of a package: phases and conditions have a type, reasons
// have none.
func (f *folder) words() []string {
	var words []string
	for _, file := range f.production() {
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				continue
			}
			for _, spec := range d.Specs {
				if word := wordOf(spec.(*ast.ValueSpec)); word != "" {
					words = append(words, word)
				}
			}
		}
	}
	return words
}

func wordOf(spec *ast.ValueSpec) string {
	if t, typed := spec.Type.(*ast.Ident); typed && t.Name != "Phase" && t.Name != "ConditionType" {
		return ""
	}
	if !spec.Names[0].IsExported() || len(spec.Values) != 1 {
		return ""
	}
	literal, ok := spec.Values[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	if word, err := strconv.Unquote(literal.Value); err == nil && camelCase.MatchString(word) {
		return word
	}
	return ""
}

func TestWords(t *testing.T) {
	_, f := snippet(t, map[string]string{"a.go": `package good

const (
	ReasonLate = "Late" // a reason
	hidden     = "Hidden"
	Header     = "X-Header"
	Ready Phase = "Ready"
	Well ConditionType = "Well"
	Managed Mode = "Managed"
)

const Alone = "Alone"

var Variable = "Variable"
`})
	if diff := cmp.Diff([]string{"Late", "Ready", "Well", "Alone"}, f.words()); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
}
