package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// process is one part of a cluster. It ends with this process.
type process struct {
	name, log string
	stdin     io.Closer // the process ends when it does
	ended     chan struct{}
}

// startProcess starts one of the programs that build.sh built.
func (c *Cluster) startProcess(program string, args ...string) (*process, error) {
	return c.startScript(program, "tied.sh", append([]string{filepath.Join(c.programs, program)}, args...)...)
}

// startScript starts a script that ends when its standard input does. The lock of the cluster's slot is its file number 3.
func (c *Cluster) startScript(name, script string, args ...string) (*process, error) {
	path, err := scriptPath(script)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: c.path(name + ".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.CommandContext(context.Background(), path, args...)
	command.Stdout, command.Stderr = log, log
	command.Dir, command.ExtraFiles = c.slot.dir, []*os.File{c.slot.lock}
	if p.stdin, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = command.Wait()
	}()
	return p, nil
}

// until waits until ask has no complaint, for two minutes at most.
func (p *process) until(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ticks.C:
		case <-p.ended:
			return fmt.Errorf("%s has ended:\n%s", p.name, p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w\n%s", p.name, ctx.Err(), err, p.lastWords())
		}
	}
}

// lastWords is the end of the log.
func (p *process) lastWords() []byte {
	log, _ := os.ReadFile(p.log)
	return log[max(0, len(log)-4096):]
}

// stop kills the process, if there is one, and waits until it is gone.
func (p *process) stop() {
	if p != nil {
		_ = p.stdin.Close()
		<-p.ended
	}
}

// run runs a script to its end and returns what it printed.
func run(ctx context.Context, script string, args ...string) (string, error) {
	path, err := scriptPath(script)
	if err != nil {
		return "", err
	}
	return output(exec.CommandContext(ctx, path, args...))
}

// output runs a command and returns what it printed. What it complained of is part of the error.
func output(command *exec.Cmd) (string, error) {
	var complaints bytes.Buffer
	command.Stderr = &complaints
	command.WaitDelay = time.Second
	out, err := command.Output()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s: %w: %s", filepath.Base(command.Path), err, bytes.TrimSpace(complaints.Bytes()))
	}
	return text, nil
}

// scriptPath finds a script from a folder of this module.
func scriptPath(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "hack", "testenv", "k8s", name), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.mod above the working directory")
		}
	}
}
