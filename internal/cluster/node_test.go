package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// childVariable makes of this test program one that starts a cluster with a node and a pod, says so, and waits to be killed.
const childVariable = "CLUSTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := startAndWait(); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func startAndWait() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	slot := newSlot(slots + 1) // which nobody else takes
	if free, err := slot.take(); !free {
		return fmt.Errorf("slot %d is taken (%v)", slot.number, err)
	}
	c, err := startIn(ctx, slot, Config{Controllers: true})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Node(ctx); err != nil {
		return err
	}
	if err := runPod(ctx, c, "pause", "localhost/pause:test"); err != nil {
		return err
	}
	fmt.Println("it runs")
	<-ctx.Done()
	return errors.New("nobody has killed it")
}

// runPod runs a pod and waits until it is ready.
func runPod(ctx context.Context, c *Cluster, name, ref string) error {
	_, err := c.Kubectl(ctx, "run", name, "--image="+ref)
	if err == nil {
		_, err = c.Kubectl(ctx, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	}
	return err
}

func TestNode(t *testing.T) {
	c := start(t, Config{Controllers: true})
	archive, ref, err := SquidImage(t.Context())
	if err != nil {
		unavailable(t, err)
	}
	before := kernelSettings(t)
	if err := c.Node(t.Context(), archive); err != nil {
		unavailable(t, err)
	}
	if err := runPod(t.Context(), c, "squid", ref); err != nil {
		t.Fatal(err)
	}
	t.Run("a pod is a proxy", func(t *testing.T) { podIsProxy(t, c) })
	t.Run("what a pod prints", func(t *testing.T) {
		kubectl(t, c, "run", "hello", "--image="+ref, "--restart=Never", "--command", "--", "sh", "-c", "echo hello")
		kubectl(t, c, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/hello", "--timeout=60s")
		if got := kubectl(t, c, "logs", "hello"); got != "hello" {
			t.Errorf("kubectl logs: %q", got)
		}
		logs, err := filepath.Glob(filepath.Join(c.PodLogs(), "default_hello_*", "hello", "0.log"))
		if err != nil || len(logs) != 1 {
			t.Fatal(logs, err)
		}
		if text, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(text), "hello") {
			t.Errorf("%s: %q, %v", logs[0], text, err)
		}
	})
	t.Run("no registry is asked", func(t *testing.T) {
		kubectl(t, c, "run", "elsewhere", "--image=docker.io/library/none:1")
		kubectl(t, c, "wait", `--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull`, "pod/elsewhere", "--timeout=60s")
	})
	t.Run("the API server restarts", func(t *testing.T) {
		c.StopAPI()
		if err := c.StartAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
		kubectl(t, c, "delete", "pod", "elsewhere", "--timeout=60s") // the kubelet has to say that it is gone
	})
	if err := c.Node(t.Context()); err == nil {
		t.Error("a second node has started")
	}
	c.stop()
	nothingLeft(t, c.slot)
	if after := kernelSettings(t); after != before {
		t.Errorf("the kernel had %s and has %s", before, after)
	}
}

// podIsProxy reaches this process, and the API server, by way of the pod.
func podIsProxy(t *testing.T, c *Cluster) {
	address := kubectl(t, c, "get", "pod", "squid", "--output=jsonpath={.status.podIP}")
	if _, pods, err := net.ParseCIDR(c.Pods()); err != nil || !pods.Contains(net.ParseIP(address)) {
		t.Errorf("%s is not in %s (%v)", address, c.Pods(), err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(c.Gateway(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "via "+r.Header.Get("Via"))
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()

	proxy := &url.URL{Scheme: "http", Host: net.JoinHostPort(address, "3128")}
	get := func(target string) (string, error) {
		roots := c.authority.tls().RootCAs
		client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
			Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true,
		}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		return string(body), err
	}
	var got string
	for deadline := time.Now().Add(time.Minute); !strings.Contains(got, "squid"); got, err = get(server.URL) { // it runs, and may not listen yet
		if time.Now().After(deadline) {
			t.Fatalf("this process: %q, %v", got, err)
		}
		<-time.After(50 * time.Millisecond)
	}
	if got, err := get("https://10.96.0.1/version"); !strings.Contains(got, "gitVersion") {
		t.Errorf("the API server: %q, %v", got, err)
	}
}

// kernelSettings are those that a kubelet sets.
func kernelSettings(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward",
	} {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s=%s ", name, strings.TrimSpace(string(value)))
	}
	return all.String()
}

// TestKilled kills a process that has a cluster: all of that ends, and the next that has its number removes the files.
func TestKilled(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), program)
	child.Env = append(os.Environ(), childVariable+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = child.Process.Kill()
	_ = child.Wait()
	if line != "it runs\n" {
		unavailable(t, errors.New(line))
	}

	s := newSlot(slots + 1)
	deadline := time.Now().Add(time.Minute)
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for free := false; !free; <-ticks.C {
		if free, err = s.take(); err != nil || time.Now().After(deadline) {
			t.Fatalf("the slot is not free again: %v, left: %q", err, leftovers(t, s))
		}
	}
	s.release()
	if _, err := os.Stat(s.dir); err == nil {
		t.Errorf("%s is still there", s.dir)
	}
	if left := leftovers(t, s); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
