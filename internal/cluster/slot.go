package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// slot is the number of a cluster among those of this machine, and what goes by it. The ports are fixed, so that a part that is
// stopped finds its own free when it starts again, and below those that the kernel hands out.
type slot struct {
	number int
	dir    string
	lock   *os.File // held by every process of the cluster, and so for as long as one of them lives
}

const (
	slots        = 250
	firstPort    = 30000
	portsPerSlot = 4
)

// takeSlot takes one that is free: first such as still have files, which are those of clusters whose processes were killed.
func takeSlot() (*slot, error) {
	var left, empty []*slot
	for number := 1; number <= slots; number++ {
		s := newSlot(number)
		if _, err := os.Stat(s.dir); err == nil {
			left = append(left, s)
		} else {
			empty = append(empty, s)
		}
	}
	var problems error
	for _, s := range append(left, empty...) {
		free, err := s.take()
		if free {
			return s, nil
		}
		problems = errors.Join(problems, err)
	}
	return nil, fmt.Errorf("there is no room for another cluster: %w", problems)
}

func newSlot(number int) *slot {
	return &slot{number: number, dir: filepath.Join(os.TempDir(), "proxyfleet-cluster-"+strconv.Itoa(number))}
}

// take says whether nobody else has it. What was left in it is removed.
func (s *slot) take() (free bool, err error) {
	if s.lock, err = os.OpenFile(s.dir+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return false, err
	}
	defer func() {
		if !free {
			_ = s.lock.Close()
		}
	}()
	if syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false, nil
	}
	for n := range portsPerSlot {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port(n))))
		if err != nil {
			return false, err
		}
		_ = listener.Close()
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return false, err
	}
	return true, os.Mkdir(s.dir, 0o755) //nolint:gosec // users of containers reach files in it
}

// release removes the files and lets another have the number, once.
func (s *slot) release() {
	if s.lock != nil {
		_ = os.RemoveAll(s.dir)
		_ = s.lock.Close()
		s.lock = nil
	}
}

// port is the nth of the slot.
func (s *slot) port(n int) int { return firstPort + s.number*portsPerSlot + n }

// outside and inside are the two ends of the wire to the node of the slot, and pods is the network of what runs on it.
func (s *slot) outside() string { return fmt.Sprintf("10.198.%d.1", s.number) }
func (s *slot) inside() string  { return fmt.Sprintf("10.198.%d.2", s.number) }
func (s *slot) pods() string    { return fmt.Sprintf("10.199.%d.0/24", s.number) }
