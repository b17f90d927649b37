package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kubeconfig is the path of one that may do anything.
func (c *Cluster) Kubeconfig() string { return c.path("admin.kubeconfig") }

// KubeconfigFor writes one with a token of a ServiceAccount, which must be there, and returns its path. The token lasts a day.
func (c *Cluster) KubeconfigFor(ctx context.Context, namespace, serviceAccount string) (string, error) {
	token, err := c.Kubectl(ctx, "create", "token", serviceAccount, "--namespace="+namespace, "--duration=24h")
	if err != nil {
		return "", err
	}
	path := c.path(namespace + "." + serviceAccount + ".kubeconfig")
	return path, writeKubeconfig(path, c.address, c.authority.pem, map[string]any{"token": token})
}

// KubectlPath is where kubectl is.
func (c *Cluster) KubectlPath() string { return filepath.Join(c.programs, "kubectl") }

// Kubectl runs kubectl as one who may do anything, and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with a standard input, as for "apply -f -".
func (c *Cluster) KubectlInput(ctx context.Context, stdin string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, c.KubectlPath(), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
	command.Env = append(os.Environ(), "KUBECACHEDIR="+c.path("kubectl"), "KUBERC=off")
	command.Stdin = strings.NewReader(stdin)
	return output(command)
}

// writeKubeconfig writes NAME.kubeconfig for a user with a certificate who reaches the API server at address.
func (c *Cluster) writeKubeconfig(name, user, group, address string) error {
	var groups []string
	if group != "" {
		groups = []string{group}
	}
	certificate, key, err := c.authority.user(user, groups...)
	if err != nil {
		return err
	}
	login := map[string]any{"client-certificate-data": certificate, "client-key-data": key}
	return writeKubeconfig(c.path(name+".kubeconfig"), address, c.authority.pem, login)
}

func writeKubeconfig(path, address string, authority []byte, login map[string]any) error {
	server := map[string]any{"server": "https://" + address, "certificate-authority-data": authority, "tls-server-name": "localhost"}
	data, err := json.MarshalIndent(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"clusters":        []any{map[string]any{"name": "test", "cluster": server}},
		"users":           []any{map[string]any{"name": "test", "user": login}},
		"contexts":        []any{map[string]any{"name": "test", "context": map[string]any{"cluster": "test", "user": "test"}}},
		"current-context": "test",
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, data, 0o600)
}
