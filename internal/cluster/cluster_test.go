package cluster

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// start starts a cluster, or skips the test where there can be none.
func start(t *testing.T, config Config) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), config)
	if err != nil {
		unavailable(t, err)
	}
	t.Cleanup(c.Close)
	return c
}

func unavailable(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// kubectl runs it and returns what it printed.
func kubectl(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const settings = "/api/v1/namespaces/default/configmaps"

func TestCluster(t *testing.T) {
	c := start(t, Config{})
	t.Run("objects", func(t *testing.T) {
		const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}, "data": {"key": "value"}}`
		if _, err := c.KubectlInput(t.Context(), object, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		if got := kubectl(t, c, "get", "configmap", "first", "--output=jsonpath={.data.key}"); got != "value" {
			t.Errorf("got %q", got)
		}
		if _, err := c.Kubectl(t.Context(), "get", "configmap", "none"); err == nil || !strings.Contains(err.Error(), `"none" not found`) {
			t.Errorf("kubectl's complaint is not in %v", err)
		}
	})
	t.Run("rights", func(t *testing.T) { rights(t, c) })
	t.Run("relay", func(t *testing.T) { throughRelays(t, c) })
	t.Run("stop and start", func(t *testing.T) { stopAndStart(t, c) })
}

// rights are those that RBAC grants a ServiceAccount, and the log says who was refused what.
func rights(t *testing.T, c *Cluster) {
	kubectl(t, c, "create", "serviceaccount", "reader")
	kubectl(t, c, "create", "role", "reader", "--verb=get", "--resource=configmaps")
	kubectl(t, c, "create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader")
	config, err := c.KubeconfigFor(t.Context(), "default", "reader")
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "--kubeconfig="+config, "get", "configmap", "kube-root-ca.crt", "--ignore-not-found")
	_, err = c.Kubectl(t.Context(), "--kubeconfig="+config, "delete", "configmap", "first")
	if err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("a right that nobody granted: %v", err)
	}
	events, err := c.Audit()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		if e.User == "system:serviceaccount:default:reader" && e.Resource != "" {
			got = append(got, fmt.Sprintf("%s %s %s/%s %d", e.Verb, e.Resource, e.Namespace, e.Name, e.Code))
		}
	}
	want := "get configmaps default/kube-root-ca.crt 404, delete configmaps default/first 403"
	if strings.Join(got, ", ") != want {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// throughRelays reaches the API server by ways that fail one by one.
func throughRelays(t *testing.T, c *Cluster) {
	var relays [2]*Relay
	var configs [2]string
	for i := range relays {
		var err error
		if relays[i], err = c.Relay(); err != nil {
			t.Fatal(err)
		}
		defer relays[i].Close()
		if configs[i], err = relays[i].Kubeconfig(c.Kubeconfig()); err != nil {
			t.Fatal(err)
		}
	}
	relays[0].Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // kubectl tries again and again
	defer cancel()
	if _, err := c.Kubectl(ctx, "--kubeconfig="+configs[0], "get", "configmap", "first"); err == nil {
		t.Error("what is cut passes")
	}
	kubectl(t, c, "--kubeconfig="+configs[1], "get", "configmap", "first")
	relays[0].Mend()
	kubectl(t, c, "--kubeconfig="+configs[0], "get", "configmap", "first")
}

// stopAndStart has the same objects at the same address before and after, and one log of both; nobody can watch from before.
func stopAndStart(t *testing.T, c *Cluster) {
	revision := kubectl(t, c, "get", "configmap", "first", "--output=jsonpath={.metadata.resourceVersion}")
	kubectl(t, c, "annotate", "configmap", "first", "a=b")
	if err := c.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.StopAPI()
	if _, err := c.Kubectl(t.Context(), "get", "configmap", "first"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("while it is down: %v", err)
	}
	if err := c.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "get", "configmap", "first")
	if got := kubectl(t, c, "get", "--raw", watchOf(revision)); !strings.Contains(got, `"code":410`) {
		t.Errorf("a watch from %s: %s", revision, got)
	}
	events, err := c.Audit()
	if err != nil {
		t.Fatal(err)
	}
	gets := 0
	for _, e := range events {
		if e.User == "admin" && e.Verb == "get" && e.Name == "first" {
			gets++
		}
	}
	if gets < 3 {
		t.Errorf("%d requests in the log", gets)
	}
}

func watchOf(revision string) string {
	return settings + "?watch=true&timeoutSeconds=1&resourceVersion=" + url.QueryEscape(revision)
}

func TestTwoAtOnce(t *testing.T) {
	var both [2]*Cluster
	var errs [2]error
	var group sync.WaitGroup
	for i := range both {
		group.Go(func() { both[i], errs[i] = Start(t.Context(), Config{Flags: []string{"--watch-cache=false"}}) })
	}
	group.Wait()
	for i, c := range both {
		if errs[i] != nil {
			unavailable(t, errs[i])
		}
		t.Cleanup(c.Close)
	}
	one, other := both[0], both[1]
	kubectl(t, one, "create", "configmap", "a")
	kubectl(t, one, "create", "configmap", "b")
	if got := kubectl(t, other, "get", "configmaps", "--output=name"); got != "" {
		t.Errorf("the other has %q", got)
	}

	revision := kubectl(t, one, "get", "configmap", "a", "--output=jsonpath={.metadata.resourceVersion}")
	page := kubectl(t, one, "get", "--raw", settings+"?limit=1")
	token := regexp.MustCompile(`"continue":"([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		t.Fatal("the list has one page: ", page)
	}
	kubectl(t, one, "create", "configmap", "c")
	if err := one.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := one.Kubectl(t.Context(), "get", "--raw", watchOf(revision)); !strings.Contains(got+fmt.Sprint(err), "410") &&
		!strings.Contains(fmt.Sprint(err), "Expired") {
		t.Errorf("a watch from before: %s %v", got, err)
	}
	if _, err := one.Kubectl(t.Context(), "get", "--raw", settings+"?limit=1&continue="+token[1]); err == nil || !strings.Contains(err.Error(), "Expired") {
		t.Errorf("the next page: %v", err)
	}
	one.stop()
	nothingLeft(t, one.slot)
	one.Close()
	kubectl(t, other, "get", "namespaces")
}
