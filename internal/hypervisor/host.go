// Package hypervisor starts real hypervisors for tests: libvirtd with QEMU behind an SSH server, in namespaces of their own. The
// scripts that do it are in hack/testenv/libvirt.
package hypervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Host is one hypervisor.
type Host struct {
	// Dir has its files: KeyFile, OtherKeyFile and EncryptedKeyFile, KnownHostsFile, logs.
	Dir string
	// Address is that of its SSH server, with the port, and IP without.
	Address, IP string
	// Gateway is this side of the wire to it: where its guests reach the tests.
	Gateway string
	// Guests is the network of its guests.
	Guests string
	// Pool and Network are those that it has; User may use them, and Outsider may log in and no more.
	Pool, Network, User, Outsider string

	leader  int
	command *exec.Cmd
	stdin   io.Closer
}

// Start starts a host whose files go to a folder of its own below the one for temporary files. It ends with Close, or with this
// process.
func Start(ctx context.Context) (*Host, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a hypervisor needs root")
	}
	for _, program := range []string{"libvirtd", "qemu-system-x86_64", "sshd", "unshare", "virsh"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("a hypervisor needs %s: hack/install-test-deps.sh installs it", program)
		}
	}
	script, err := script("host.sh")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "proxyfleet-host-")
	if err != nil {
		return nil, err
	}
	h := &Host{Dir: dir, Network: "default", User: "fleet", Outsider: "outsider"}
	if err := h.start(ctx, script); err != nil {
		log, _ := os.ReadFile(h.Path("host.log"))
		h.Close()
		return nil, fmt.Errorf("the hypervisor does not start: %w\n%s", err, log)
	}
	return h, nil
}

func (h *Host) start(ctx context.Context, script string) error {
	if err := os.Chmod(h.Dir, 0o755); err != nil { //nolint:gosec // users of the host reach sockets in it
		return err
	}
	h.command = exec.CommandContext(context.WithoutCancel(ctx), script, h.Dir)
	var output bytes.Buffer
	h.command.Stdout, h.command.Stderr = &output, &output
	stdin, err := h.command.StdinPipe()
	if err != nil {
		return err
	}
	h.stdin = stdin
	if err := h.command.Start(); err != nil {
		return err
	}
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for {
		if env, err := os.ReadFile(h.Path("env")); err == nil {
			return h.read(string(env))
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *Host) read(env string) (err error) {
	for line := range strings.Lines(env) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ADDRESS":
			h.Address = value
		case "HOST":
			h.IP = value
		case "GATEWAY":
			h.Gateway = value
		case "GUESTS":
			h.Guests = value
		case "POOL":
			h.Pool = value
		case "LEADER":
			h.leader, err = strconv.Atoi(value)
		}
	}
	return err
}

// Close ends the host with all its processes, and removes its files.
func (h *Host) Close() {
	if h.stdin != nil {
		_ = h.stdin.Close()
		_ = h.command.Wait()
	}
	_ = os.RemoveAll(h.Dir)
}

// Path is that of one of the host's files.
func (h *Host) Path(name string) string { return filepath.Join(h.Dir, name) }

// KeyFile is the key that User and Outsider log in with.
func (h *Host) KeyFile() string { return h.Path("id") }

// KnownHostsFile has the host's key.
func (h *Host) KnownHostsFile() string { return h.Path("known_hosts") }

// Exec runs a command on the host and returns what it printed.
func (h *Host) Exec(ctx context.Context, command ...string) (string, error) {
	args := append([]string{"--target", strconv.Itoa(h.leader), "--mount", "--net", "--pid", "--"}, command...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, text)
	}
	return text, nil
}

// LibvirtSocket is where libvirtd's socket is to be reached from outside of the host.
func (h *Host) LibvirtSocket() string {
	return fmt.Sprintf("/proc/%d/root/run/libvirt/libvirt-sock", h.leader)
}

// Image returns the path of the tiny guest's disk. It is built if need be.
func Image(ctx context.Context) (string, error) {
	script, err := script("image.sh")
	if err != nil {
		return "", err
	}
	var complaints bytes.Buffer
	command := exec.CommandContext(ctx, script)
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("the guest's image cannot be built: %w\n%s", err, &complaints)
	}
	return strings.TrimSpace(string(out)), nil
}

// script finds one of the scripts from a folder of this module.
func script(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "hack", "testenv", "libvirt", name), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.mod above the working directory")
		}
	}
}
