// Package cluster starts real Kubernetes clusters for tests: etcd and an API server, and, for who asks for them, the controllers and
// a node that runs pods. The scripts that build and start the parts are in hack/testenv/k8s.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Config says which cluster is wanted.
type Config struct {
	// Controllers has the controller manager and the scheduler run: what collects garbage, empties a namespace that is deleted, and
	// makes each namespace's ServiceAccount "default". A node needs them. Without them objects lie as they were written, and a pod
	// needs no ServiceAccount. Defaults to none.
	Controllers bool
	// Flags are further ones of the API server.
	Flags []string
}

// Cluster is one that runs. Its methods may be called at once, but those that stop and start parts of it.
type Cluster struct {
	config    Config
	programs  string // the folder of those that build.sh builds
	slot      *slot
	authority *authority
	address   string // of the API server

	etcd, api, controllers, scheduler *process
	node                              *node
}

// Start starts a cluster whose API server is ready. Its files go to a folder of its own below the one for temporary files. It ends
// with Close, or with this process; what is left of one whose process was killed is removed by one of the next.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	slot, err := takeSlot()
	if err != nil {
		return nil, err
	}
	return startIn(ctx, slot, config)
}

// startIn starts a cluster in a slot that is taken, and releases that if it cannot.
func startIn(ctx context.Context, slot *slot, config Config) (*Cluster, error) {
	programs, err := run(ctx, "build.sh")
	if err != nil {
		slot.release()
		return nil, fmt.Errorf("the parts of Kubernetes cannot be built: %w", err)
	}
	c := &Cluster{config: config, programs: programs, slot: slot, address: net.JoinHostPort("127.0.0.1", strconv.Itoa(slot.port(0)))}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("the cluster does not start: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	if err := c.StartAPI(ctx); err != nil {
		return err
	}
	if c.config.Controllers {
		return c.startControllers(ctx)
	}
	return nil
}

// writeFiles writes what the parts read.
func (c *Cluster) writeFiles() error {
	err := errors.Join(
		c.authority.write(c.path("ca.crt")),
		c.authority.server(c.path("apiserver"), "kube-apiserver", nil, "localhost", "127.0.0.1", "10.96.0.1"),
		c.authority.client(c.path("apiserver-kubelet"), "kube-apiserver-kubelet-client", "system:masters"),
		writeKey(c.path("accounts.key")),
		os.WriteFile(c.path("audit.yaml"), []byte(auditPolicy), 0o600),
	)
	for name, user := range map[string]struct{ name, group string }{
		"admin":       {"admin", "system:masters"},
		"controllers": {"system:kube-controller-manager", ""},
		"scheduler":   {"system:kube-scheduler", ""},
	} {
		err = errors.Join(err, c.writeKubeconfig(name, user.name, user.group, c.address))
	}
	return err
}

func (c *Cluster) startEtcd() (err error) {
	peers := "http://127.0.0.1:" + strconv.Itoa(c.slot.port(2))
	c.etcd, err = c.startProcess("etcd",
		"--data-dir="+c.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+c.etcdURL(), "--advertise-client-urls="+c.etcdURL(),
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	return err
}

func (c *Cluster) etcdURL() string { return "http://127.0.0.1:" + strconv.Itoa(c.slot.port(1)) }

// StartAPI starts the API server, as Start has done already, and waits until it is ready. It has the address that it had before, and
// the same etcd.
func (c *Cluster) StartAPI(ctx context.Context) (err error) {
	if c.api != nil {
		return errors.New("the API server runs")
	}
	flags := []string{
		"--etcd-servers=" + c.etcdURL(),
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.slot.port(0)), "--advertise-address=" + c.slot.outside(),
		"--tls-cert-file=" + c.path("apiserver.crt"), "--tls-private-key-file=" + c.path("apiserver.key"),
		"--client-ca-file=" + c.path("ca.crt"),
		"--kubelet-certificate-authority=" + c.path("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + c.path("apiserver-kubelet.crt"), "--kubelet-client-key=" + c.path("apiserver-kubelet.key"),
		"--authorization-mode=Node,RBAC", "--allow-privileged", "--service-cluster-ip-range=10.96.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("accounts.key"), "--service-account-signing-key-file=" + c.path("accounts.key"),
		"--audit-policy-file=" + c.path("audit.yaml"), "--audit-log-path=" + c.path("audit.log"), "--audit-log-maxsize=100000",
	}
	if !c.config.Controllers {
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	if c.api, err = c.startProcess("kube-apiserver", append(flags, c.config.Flags...)...); err != nil {
		return err
	}
	return c.api.until(ctx, c.ready)
}

// StopAPI ends the API server at once, as a crash does. The rest goes on.
func (c *Cluster) StopAPI() {
	c.api.stop()
	c.api = nil
}

// ready asks the API server whether it is.
func (c *Cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.address+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: c.authority.tls(), DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}

// startControllers waits until there is what a pod needs.
func (c *Cluster) startControllers(ctx context.Context) (err error) {
	as := func(name string) []string {
		config := c.path(name + ".kubeconfig")
		return []string{
			"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--secure-port=0", "--leader-elect=false",
		}
	}
	c.controllers, err = c.startProcess("kube-controller-manager", append(as("controllers"),
		"--use-service-account-credentials", "--root-ca-file="+c.path("ca.crt"),
		"--service-account-private-key-file="+c.path("accounts.key"))...)
	if err != nil {
		return err
	}
	if c.scheduler, err = c.startProcess("kube-scheduler", as("scheduler")...); err != nil {
		return err
	}
	return c.controllers.until(ctx, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "get", "serviceaccount", "default")
		return err
	})
}

// Close ends the cluster with all that runs on it, and removes its files.
func (c *Cluster) Close() {
	c.stop()
	c.slot.release()
}

func (c *Cluster) stop() {
	c.node.stop()
	for _, process := range []*process{c.scheduler, c.controllers, c.api, c.etcd} {
		process.stop()
	}
}

// Address is that of the API server, with the port.
func (c *Cluster) Address() string { return c.address }

// path is that of one of the cluster's files.
func (c *Cluster) path(name string) string { return filepath.Join(c.slot.dir, name) }
