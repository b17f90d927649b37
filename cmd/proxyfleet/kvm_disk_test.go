package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Machines write to their disks while somebody else fills the host's. They are paused, and their proxies say why. Each is replaced
// once: while the host stays full nothing is started, however often its proxy looks for room; and when there is some, the next
// machine serves.
func vmsOnAFullDisk(t *testing.T) {
	v := newVMs(t, 1, "kvm")
	var write atomic.Bool
	told := v.serve(v.hosts[0].Gateway, func(w http.ResponseWriter, _ *http.Request) {
		if !write.Load() {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	machines := v.ofEach("tiny")
	const pool = "/var/lib/libvirt/images/fleet"
	v.declare(setup(fmt.Sprintf(`[sh, -c, "(until wget -q -O /dev/null %s; do sleep 1; done; dd if=/dev/zero of=/dev/vda bs=1M count=70) &"]`, told)), machines...)
	s := v.start("--quota-retry", "2s")
	first := v.ready(s, machines...)
	was := map[string]string{}
	for name, p := range first {
		was[name] = v.incarnation(0, domain(p.UID))
	}

	v.on(0, "cd "+pool+"; dd if=/dev/zero of=ballast bs=1M 2>/dev/null || true") // before the machine writes
	v.on(0, "cd "+pool+"; (while :; do dd if=/dev/zero bs=4k >>ballast; sleep 0.1; done) >/dev/null 2>&1 & echo $! >"+v.hosts[0].Path("filler.pid"))
	write.Store(true)
	v.say(s, "DiskFull")
	write.Store(false)
	v.say(s, "PoolFull")
	v.eventually(func() string {
		for name, p := range first {
			if n := strings.Count(s.log.String(), `"msg":"create failed","proxy":"default/`+name); n < 3 {
				return fmt.Sprintf("%s has looked for room %d times", name, n)
			}
			if started := v.starts(0, domain(p.UID)); started != "1" {
				t.Fatalf("%s was started %s times, on a disk that is full", name, started)
			}
		}
		return ""
	})

	v.on(0, "kill $(cat "+v.hosts[0].Path("filler.pid")+"); rm "+pool+"/ballast")
	for name, p := range v.ready(s, machines...) {
		v.crawl(s, name)
		if now := v.incarnation(0, domain(p.UID)); now == was[name] || v.starts(0, domain(p.UID)) != "2" {
			t.Errorf("%s was %s and is %s, after %s starts", name, was[name], now, v.starts(0, domain(p.UID)))
		}
	}
	if left := strings.Fields(v.left(0)); len(left) != 4*len(machines) {
		t.Errorf("beside the machine, its disk, its seed and its NVRAM there is: %q", left)
	}
}

// say waits until the condition Provisioned of each proxy says something.
func (v *vms) say(s *server, what string) {
	v.t.Helper()
	within(v.t, 8*time.Minute, 50*time.Millisecond, func() string { // it may not say so for long
		for name, p := range s.list() {
			if said := provisioned(p); !strings.Contains(said, what) {
				return fmt.Sprintf("%s is told to be %q, and not %s", name, said, what)
			}
		}
		return ""
	})
}
