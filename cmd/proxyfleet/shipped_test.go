package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shippedFlag is an argument of the program in a manifest or in a template of the chart.
var shippedFlag = regexp.MustCompile(`(?m)^\s*(?:- |value: )(-f|--[a-z-]+)(=.*)?$`)

// Every flag in what is shipped for Kubernetes is one that the program has.
func TestShippedFlags(t *testing.T) {
	t.Parallel()
	args := []string{"run"}
	err := filepath.WalkDir("../../deploy", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range shippedFlag.FindAllStringSubmatch(string(text), -1) {
			args = append(args, match[1]+match[2])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(args) < 20 {
		t.Fatalf("found only %q", args)
	}
	if got := call(t, append(args, "--help")...); got.code != 0 {
		t.Errorf("code %d: %s", got.code, got.stderr)
	}
	if got := call(t, append(args, "--no-such-flag", "--help")...); got.code == 0 {
		t.Error("a flag that there is not passes for one")
	}
}

// The configurations in what is shipped are complete and right.
func TestShippedConfigurations(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"../../deploy/kubernetes/base/fleet.yaml", "../../examples/kubernetes/fleet.yaml"} {
		if got := call(t, "validate", "-f", path); got.code != 0 || strings.Contains(got.stdout+got.stderr, "warning") {
			t.Errorf("%s: code %d: %s%s", path, got.code, got.stdout, got.stderr)
		}
	}
	example := []string{"-f", "../../examples/kubernetes/fleet.yaml", "-f", "../../examples/kubernetes/proxies.yaml"}
	if got := call(t, append([]string{"validate"}, example...)...); got.code != 0 || strings.Contains(got.stdout+got.stderr, "warning") {
		t.Errorf("the example: code %d: %s%s", got.code, got.stdout, got.stderr)
	}
}
