package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Of the two hosts of a provider one goes down. Its proxies stay what they are: while only its daemons are gone they are leased and
// used as ever, and while its wire is cut they are unhealthy, and nothing else. Those of the other host go on, new ones too. Nobody
// takes what the other host lists for the whole: an orphan there stays until both hosts answer again. Then all is as declared, and
// no machine was ever started twice.
func vmsOnTwoHosts(t *testing.T) {
	const kind = "kvm"
	v := newVMs(t, 2, kind)
	near, far := vm{"near", kind, "one", "tiny"}, vm{"far", kind, "two", "tiny"}
	late, lost := vm{"late", kind, "one", "blank"}, vm{"lost", kind, "one", "blank"}
	v.declare(setup("echo one"), near, far, lost)
	s := v.start("--gc-interval", "1s", "--gc-min-age", "1s", "--metrics-listen", "127.0.0.1:0", "--provider-check-interval", "10s")
	runs := func(host int, name string) string {
		if has := v.on(host, "virsh list --name"); !strings.Contains(has, name) {
			return fmt.Sprintf("host %s lacks %s, and has %q", hostNames[host], name, has)
		}
		return ""
	}
	uids := map[string]string{}
	for name, p := range v.ready(s, near, far) {
		uids[name] = p.UID
	}
	v.eventually(func() string { return runs(0, domain(uids["lost"])) })
	placed := map[string]string{"near": v.incarnation(0, domain(uids["near"])), "far": v.incarnation(1, domain(uids["far"]))}
	if placed["near"] == "" || placed["far"] == "" {
		t.Fatalf("they are placed as %v", placed)
	}
	v.crawl(s, "near")
	v.crawl(s, "far")

	v.stopDaemons(1)
	s.loses(v, lost, near, far)
	waits := func() {
		t.Helper()
		before := s.sweeps("unreadable")
		v.eventually(func() string {
			if missing := runs(0, domain(uids["lost"])); missing != "" {
				t.Fatalf("a sweep has deleted by half a list: %s", missing)
			}
			if s.sweeps("unreadable") == before {
				return fmt.Sprintf("there were %d sweeps without a list, and no more", before)
			}
			return ""
		})
		plan := s.cli("gc", "--dry-run")
		if plan.code != 1 || !strings.Contains(plan.stdout, kind+": not known") || !strings.Contains(plan.stderr, "host two") {
			t.Errorf("the plan of a sweep while a host is down: %+v", plan)
		}
	}
	waits()
	s.awaitPhases(map[string]string{"near": "Ready", "far": "Ready"})
	v.crawl(s, "near")
	v.crawl(s, "far")
	v.eventually(func() string {
		if list := s.cli("get", "providers"); !strings.Contains(list.stdout, "1/2") {
			return "one of two hosts is ready, and the list is: " + list.stdout
		}
		return ""
	})

	v.on(1, "ip link set eth0 down")
	v.eventually(func() string {
		if far := s.list()["far"]; far.Phase != "Unhealthy" {
			return fmt.Sprintf("far is %+v", far)
		}
		return ""
	})
	waits()
	v.crawl(s, "near")
	v.declare(setup("echo one"), near, far, late)
	v.eventually(func() string { uid := s.list()["late"].UID; return runs(0, domain(uid)) })
	if far := s.list()["far"]; far.Phase != "Unhealthy" || far.InstanceID != "hosts/two/domains/"+domain(uids["far"]) {
		t.Errorf("far is %+v", far)
	}

	v.on(1, "ip link set eth0 up && ip route add default via "+v.hosts[1].Gateway)
	v.startDaemons(1)
	v.eventually(func() string {
		if missing := runs(0, domain(uids["lost"])); missing == "" {
			return "the orphan is still there"
		}
		if far := s.list()["far"]; far.Phase != "Ready" {
			return fmt.Sprintf("far is %+v", far)
		}
		return ""
	})
	v.crawl(s, "far")
	for host, name := range []string{"near", "far"} {
		d := domain(uids[name])
		if now := v.incarnation(host, d); now != placed[name] || v.starts(host, d) != "1" {
			t.Errorf("%s was %s and is %s, started %s times", name, placed[name], now, v.starts(host, d))
		}
		if count := len(strings.Fields(v.on(host, "virsh list --all --name"))); count != 2-host {
			t.Errorf("host %s has %d domains", hostNames[host], count)
		}
	}
}

// loses has the fleet forget a proxy and leave its machine behind.
func (s *server) loses(v *vms, lost vm, others ...vm) {
	s.t.Helper()
	if r := s.cli("skip-cleanup", lost.name); r.code != 0 {
		s.t.Fatalf("skip-cleanup: %+v", r)
	}
	v.declare(setup("echo one"), others...)
	v.eventually(func() string {
		if p, there := s.list()[lost.name]; there {
			return fmt.Sprintf("it is still known: %+v", p)
		}
		return ""
	})
}

// sweeps returns how many ended like this.
func (s *server) sweeps(result string) int {
	s.t.Helper()
	count, _ := strconv.Atoi(s.metric(`proxyfleet_gc_sweeps_total{provider="kvm",result="` + result + `"}`))
	return count
}

// stopDaemons ends the SSH server of a host, with all its connections, and libvirtd. The machines run on.
func (v *vms) stopDaemons(host int) {
	v.t.Helper()
	dir := v.hosts[host].Dir
	v.on(host, "sshd=$(cat "+dir+`/sshd.pid); sessions=$(ps -o pid= --ppid $sshd)
		kill -KILL $sshd $sessions $(for p in $sessions; do ps -o pid= --ppid $p; done)
		kill $(cat `+dir+"/libvirtd.pid); while [ -e "+dir+"/libvirtd.pid ]; do sleep 0.05; done")
}

func (v *vms) startDaemons(host int) {
	v.t.Helper()
	dir := v.hosts[host].Dir
	v.on(host, "libvirtd --daemon --pid-file "+dir+"/libvirtd.pid; /usr/sbin/sshd -f "+dir+"/sshd_config -E "+dir+"/sshd.log")
}
