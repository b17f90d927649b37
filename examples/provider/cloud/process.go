package cloud

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The ports of instances are below those that Linux gives to outgoing connections.
const (
	firstPort = 10000
	portCount = 20000
)

// loopbackOnly is tinyproxy's list of the destinations that may be reached.
const loopbackOnly = "^localhost$\n^127\\.[0-9.]*$\n"

// process is a tinyproxy. A pid alone says nothing, for it is used again after a process has ended. So no pid is ever stored:
// a process is known by its command line, which names the file of one instance, whose id never comes again.
type process struct {
	*os.Process
	conf string
}

// alive says whether the process runs. One that has ended and was not waited for has no command line.
func (p *process) alive() bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid))
	return err == nil && confOf(line) == p.conf
}

// ended says whether nothing of the process is left but perhaps a zombie. It loses its command line before its listener.
func (p *process) ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
	if err != nil {
		return true
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("Z")) || bytes.HasPrefix(state, []byte("X"))
}

// kill ends the process. The handle was taken before alive looks, and where the kernel has handles for processes it means
// the same one for ever.
func (p *process) kill() {
	if p.alive() {
		_ = p.Kill() // It may have ended just now.
	}
}

// confOf returns the configuration file in the command line of a tinyproxy that startProcess started, or "".
func confOf(line []byte) string {
	args := strings.Split(string(bytes.TrimSuffix(line, []byte{0})), "\x00")
	if len(args) != 4 || args[1] != "-d" || args[2] != "-c" {
		return ""
	}
	return args[3]
}

// startProcess starts a tinyproxy in a session of its own, so that no signal for the cloud reaches it.
func (c *Cloud) startProcess(i *Instance, s Spec) error {
	conf := c.confPath(i.ID)
	if err := os.WriteFile(conf, c.configuration(i, s), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(c.logPath(i.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.tinyproxy, "-d", "-c", conf) //nolint:noctx // It is to outlive whatever started it.
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{Process: cmd.Process, conf: conf}
	c.processes[i.ID] = p
	// It ends with the process, which would stay a zombie if nobody waited for it.
	go func() { _ = cmd.Wait() }()
	for !p.alive() && !p.ended() { // the kernel shows a command line a moment after it has begun
		<-time.After(100 * time.Microsecond)
	}
	return nil
}

// configuration is of a tinyproxy that is of use on this machine alone. What of it comes from a caller is a word.
func (c *Cloud) configuration(i *Instance, s Spec) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Listen 127.0.0.1\nPort %d\nAllow 127.0.0.1\n", i.Port)
	fmt.Fprintf(&b, "Filter \"%s\"\nFilterDefaultDeny Yes\n", c.filterPath())
	b.WriteString("MaxClients 100\nTimeout 60\nDisableViaHeader Yes\nLogLevel Warning\n")
	if s.Username != "" {
		fmt.Fprintf(&b, "BasicAuth %s %s\n", s.Username, s.Password)
	}
	return b.Bytes()
}

// port returns the next port on which nobody listens.
func (c *Cloud) port() (int, error) {
	for range portCount {
		port := c.nextPort
		c.nextPort = firstPort + (c.nextPort+1-firstPort)%portCount
		if l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port is free")
}

func (c *Cloud) confPath(id int64) string {
	return filepath.Join(c.config.Dir, strconv.FormatInt(id, 10)+".conf")
}

func (c *Cloud) logPath(id int64) string {
	return filepath.Join(c.config.Dir, strconv.FormatInt(id, 10)+".log")
}

func (c *Cloud) filterPath() string { return filepath.Join(c.config.Dir, "destinations") }

func (c *Cloud) removeFiles(id int64) {
	_ = os.Remove(c.confPath(id)) // It may be gone already.
	_ = os.Remove(c.logPath(id))
}

// findProcesses returns the processes whose files are in a directory, by the ids of their instances.
func findProcesses(dir string) (map[int64]*process, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	found := map[int64]*process{}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // It ended meanwhile.
		}
		conf := confOf(line)
		id, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(conf), ".conf"), 10, 64)
		if err != nil || filepath.Dir(conf) != dir {
			continue // It is none of ours.
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		handle, err := os.FindProcess(pid)
		if err != nil {
			return nil, err
		}
		found[id] = &process{Process: handle, conf: conf}
	}
	return found, nil
}

// awaitEnd returns when none of the processes runs any more.
func awaitEnd(processes []*process) error {
	deadline := time.After(10 * time.Second)
	for _, p := range processes {
		for !p.ended() {
			select {
			case <-deadline:
				return fmt.Errorf("process %d was killed and does not end", p.Pid)
			case <-time.After(time.Millisecond):
			}
		}
	}
	return nil
}

func findTinyproxy() (string, error) {
	path, err := exec.LookPath("tinyproxy")
	if err != nil {
		return "", fmt.Errorf("%w (on Debian: apt-get install tinyproxy)", err)
	}
	return path, nil
}
