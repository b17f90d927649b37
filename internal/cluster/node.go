package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// node is the one of a cluster.
type node struct {
	process *process
	relay   *Relay // how it reaches the API server
}

// Node starts a real node, node1, and waits until it is ready: containerd, with the images that these archives hold, and a kubelet,
// in namespaces of their own. It has no cluster DNS and no Services but that of the API server. Needs root, and Config.Controllers.
func (c *Cluster) Node(ctx context.Context, images ...string) error {
	switch {
	case !c.config.Controllers:
		return errors.New("a node needs Config.Controllers")
	case c.node != nil:
		return errors.New("the cluster has a node")
	case os.Geteuid() != 0:
		return errors.New("a node needs root")
	}
	for _, program := range []string{"containerd", "ctr", "runc", "/usr/lib/cni/bridge", "unshare", "ip", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("a node needs %s: hack/install-test-deps.sh installs it", program)
		}
	}
	pause, _, err := image(ctx, "pause")
	if err != nil {
		return err
	}
	if err := c.writeNodeFiles(); err != nil {
		return err
	}
	args := append([]string{c.slot.dir, strconv.Itoa(c.slot.number), pause}, images...)
	process, err := c.startScript("node", "node.sh", args...)
	if err != nil {
		return err
	}
	c.node = &node{process: process}
	if err := process.until(ctx, c.wired); err != nil {
		return err
	}
	if c.node.relay, err = c.relayAt(c.relayOfNode()); err != nil {
		return err
	}
	return process.until(ctx, c.nodeReady)
}

func (c *Cluster) writeNodeFiles() error {
	const user, group = "system:node:node1", "system:nodes"
	return errors.Join(
		os.Symlink(c.programs, c.path("programs")),
		os.WriteFile(c.path("api"), []byte(c.relayOfNode()), 0o600),
		c.authority.server(c.path("kubelet"), user, []string{group}, c.slot.inside()),
		c.writeKubeconfig("node", user, group, c.relayOfNode()),
	)
}

// relayOfNode is where the node reaches the API server.
func (c *Cluster) relayOfNode() string {
	return net.JoinHostPort(c.Gateway(), strconv.Itoa(c.slot.port(3)))
}

func (c *Cluster) wired(context.Context) error {
	_, err := os.Stat(c.path("node.wired"))
	return err
}

func (c *Cluster) nodeReady(ctx context.Context) error {
	status, err := c.Kubectl(ctx, "get", "node", "node1", `--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	if err == nil && status != "True" {
		err = errors.New("node1 is not ready")
	}
	return err
}

// Gateway is the address at which what runs on the node reaches this process, and Pods the network of what runs there.
func (c *Cluster) Gateway() string { return c.slot.outside() }

// Pods is the network of the node's pods, which this process reaches.
func (c *Cluster) Pods() string { return c.slot.pods() }

// PodLogs is the folder with what the containers of the node's pods print: NAMESPACE_POD_UID/CONTAINER/0.log.
func (c *Cluster) PodLogs() string { return c.path("pods") }

// stop ends the node, if there is one, with all its pods.
func (n *node) stop() {
	if n == nil {
		return
	}
	n.process.stop()
	if n.relay != nil {
		n.relay.Close()
	}
}

// SquidImage returns the path of an archive for Node that has Squid, and what its image is called. It is built if need be.
func SquidImage(ctx context.Context) (path, ref string, err error) { return image(ctx, "squid") }

func image(ctx context.Context, name string) (path, ref string, err error) {
	lines, err := run(ctx, "image.sh", name)
	if err != nil {
		return "", "", fmt.Errorf("the image of %s cannot be built: %w", name, err)
	}
	path, ref, _ = strings.Cut(lines, "\n")
	return filepath.Clean(path), ref, nil
}
