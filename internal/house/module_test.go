package house

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModule(t *testing.T) {
	for _, problem := range moduleProblems(t, filepath.Join(root, "go.mod")) {
		t.Error(problem)
	}
}

// moduleProblems says what in a go.mod would trouble those who require the module.
func moduleProblems(t *testing.T, file string) []string {
	t.Helper()
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err) // this also tells go test that the answer depends on the file
	}
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("go mod edit: %v\n%s", err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Replace   []struct{ Old struct{ Path string } }
		Exclude   []struct{ Path string }
		Tool      []struct{ Path string }
		Toolchain string
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var problems []string
	for _, replace := range mod.Replace {
		problems = append(problems, "replace "+replace.Old.Path+": nobody but us would build with it")
	}
	for _, exclude := range mod.Exclude {
		problems = append(problems, "exclude "+exclude.Path+": nobody but us would build with it")
	}
	for _, tool := range mod.Tool {
		problems = append(problems, "tool "+tool.Path+": its requirements would become those of all who require this module; it belongs into tools/go.mod")
	}
	if mod.Toolchain != "" {
		problems = append(problems, "toolchain "+mod.Toolchain+": the go line says enough")
	}
	return problems
}

func TestModuleProblems(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go.mod")
	const text = `module example.com/bad

go 1.26.0

toolchain go1.26.8

tool example.com/linter

require example.com/a v1.0.0

replace example.com/a => ../a

exclude example.com/b v1.0.0
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"replace example.com/a: nobody but us would build with it",
		"exclude example.com/b: nobody but us would build with it",
		"tool example.com/linter: its requirements would become those of all who require this module; it belongs into tools/go.mod",
		"toolchain go1.26.8: the go line says enough",
	}
	if diff := cmp.Diff(want, moduleProblems(t, file)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
