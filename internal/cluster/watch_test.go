package cluster

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
)

// watchFrom watches ConfigMaps by way of a kubeconfig, and sends the names of those that change. It begins when the watch has.
func watchFrom(t *testing.T, c *Cluster, config string) (<-chan string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), c.KubectlPath(), "--kubeconfig="+config,
		"get", "configmaps", "--watch", "--output=jsonpath={.metadata.name}{\"\\n\"}")
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	names := make(chan string)
	lines := bufio.NewScanner(out)
	lines.Scan() // what is there already: "first"
	go func() {
		defer close(names)
		for lines.Scan() {
			names <- strings.TrimSpace(lines.Text())
		}
		_ = command.Wait()
	}()
	return names, nil
}
