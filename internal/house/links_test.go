package house

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestLinks(t *testing.T) {
	module := os.DirFS(root)
	found, err := pages(module)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 5 {
		t.Fatalf("found only the pages %v", found)
	}
	for _, page := range found {
		for _, problem := range linkProblems(module, page) {
			t.Error(problem)
		}
	}
}

// pages are the Markdown files of the module.
func pages(module fs.FS) ([]string, error) {
	var pages []string
	err := fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && !holdsPackages(module, name):
			return fs.SkipDir
		case !d.IsDir() && path.Ext(name) == ".md":
			pages = append(pages, name)
		}
		return nil
	})
	return pages, err
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
	linked    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// linkProblems says which links of a page lead nowhere: to no file or folder of the module, or to no heading. Links to
// other sites are not followed.
func linkProblems(module fs.FS, page string) []string {
	text, err := fs.ReadFile(module, page)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	prose := codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(string(text), ""), "")
	for _, match := range link.FindAllStringSubmatch(prose, -1) {
		if strings.Contains(match[1], ":") { // It has a scheme.
			continue
		}
		file, anchor, _ := strings.Cut(match[1], "#")
		target := page
		if file != "" {
			target = path.Join(path.Dir(page), file)
		}
		if _, err := fs.Stat(module, target); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s leads to no file", page, match[1]))
		} else if anchor != "" && !anchors(module, target)[anchor] {
			problems = append(problems, fmt.Sprintf("%s: %s leads to no heading", page, match[1]))
		}
	}
	return problems
}

// anchors are what links to the headings of a page say, as GitHub makes them. What cannot be read has none.
func anchors(module fs.FS, page string) map[string]bool {
	text, err := fs.ReadFile(module, page)
	if err != nil {
		return nil
	}
	anchors, seen := map[string]bool{}, map[string]int{}
	for _, match := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(text), ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, linked.ReplaceAllString(match[1], "$1"))
		again := seen[anchor]
		seen[anchor]++
		if again > 0 { // The second of a name is name-1.
			anchor = fmt.Sprintf("%s-%d", anchor, again)
		}
		anchors[anchor] = true
	}
	return anchors
}

func TestLinkProblems(t *testing.T) {
	module := fstest.MapFS{
		"docs/other.md": {Data: []byte("# `run -f`: a [start](x.md)\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n")},
		"docs/page.md": {Data: []byte(`# Good

[here](#good), [other](other.md#run--f-a-start), [first](other.md#twice), [second](other.md#twice-1), [up](../docs),
[` + "`code`" + `](other.md), [site](https://example.com/none.md#none), ` + "`[in code](none.md)`" + `

` + "```\n[in a block](none.md)\n```" + `

[gone](none.md), [gone too](../other.md#twice), [no such heading](#bad), [a third](other.md#twice-2),
[a comment](other.md#no-heading), [of a folder](../docs#good)
`)},
	}
	want := []string{
		"docs/page.md: none.md leads to no file",
		"docs/page.md: ../other.md#twice leads to no file",
		"docs/page.md: #bad leads to no heading",
		"docs/page.md: other.md#twice-2 leads to no heading",
		"docs/page.md: other.md#no-heading leads to no heading",
		"docs/page.md: ../docs#good leads to no heading",
	}
	if diff := cmp.Diff(want, linkProblems(module, "docs/page.md")); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
