// Command guest is the part of cloud-init that the tiny guest of the tests needs: of the documents in a folder it writes the
// files, and runs the commands, of those that are cloud-config, and runs those that are scripts.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"
)

// cloudConfig is what is understood of a cloud-config document.
type cloudConfig struct {
	WriteFiles []struct {
		Path        string `json:"path"`
		Content     string `json:"content"`
		Permissions string `json:"permissions"`
	} `json:"write_files"`
	RunCmd []any `json:"runcmd"`
}

func main() {
	for _, name := range []string{"vendor-data", "user-data"} {
		document, err := os.ReadFile(filepath.Join(os.Args[1], name))
		if err != nil {
			continue
		}
		if err := do(name, document); err != nil {
			fmt.Printf("guest: %s: %v\n", name, err)
		}
	}
}

func do(name string, document []byte) error {
	switch {
	case bytes.HasPrefix(document, []byte("#!")):
		script := "/run/" + name
		if err := os.WriteFile(script, document, 0o700); err != nil { //nolint:gosec // it is run
			return err
		}
		return run(script)
	case bytes.HasPrefix(document, []byte("#cloud-config")):
		var c cloudConfig
		if err := yaml.Unmarshal(document, &c); err != nil {
			return err
		}
		return c.apply()
	}
	return nil
}

func (c cloudConfig) apply() error {
	for _, file := range c.WriteFiles {
		mode, err := strconv.ParseUint(file.Permissions, 8, 32)
		if err != nil {
			mode = 0o644
		}
		if err := os.MkdirAll(filepath.Dir(file.Path), 0o755); err != nil { //nolint:gosec // as cloud-init has it
			return err
		}
		if err := os.WriteFile(file.Path, []byte(file.Content), os.FileMode(mode)); err != nil {
			return err
		}
	}
	for _, command := range c.RunCmd {
		words := []string{"/bin/sh", "-c", fmt.Sprint(command)}
		if list, ok := command.([]any); ok {
			words = nil
			for _, word := range list {
				words = append(words, fmt.Sprint(word))
			}
		}
		if err := run(words...); err != nil {
			return err
		}
	}
	return nil
}

func run(words ...string) error {
	cmd := exec.CommandContext(context.Background(), words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
