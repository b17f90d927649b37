package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/internal/hypervisor"
)

// killPoint is a call at which a fleet is killed, and what becomes of the call.
type killPoint struct {
	what string
	call uint32
	how  hypervisor.Verdict
}

// The calls that make and remove something.
var (
	making = []killPoint{
		{"during the upload of a seed", hypervisor.StorageVolUpload, hypervisor.Swallow},
		{"before define", hypervisor.DomainDefineXML, hypervisor.Swallow},
		{"after define", hypervisor.DomainDefineXML, hypervisor.Lose},
		{"after a volume was made", hypervisor.StorageVolCreateXML, hypervisor.Lose},
		{"before start", hypervisor.DomainCreate, hypervisor.Swallow},
		{"after start", hypervisor.DomainCreate, hypervisor.Lose},
	}
	removing = []killPoint{
		{"after destroy", hypervisor.DomainDestroy, hypervisor.Lose},
		{"after a volume was deleted", hypervisor.StorageVolDelete, hypervisor.Lose},
		{"before undefine", hypervisor.DomainUndefineFlags, hypervisor.Swallow},
		{"after undefine", hypervisor.DomainUndefineFlags, hypervisor.Lose},
	}
)

// The fleet is killed while an image is fetched, and around each call that makes or removes something. The next start goes on from
// there: there is one machine, and after a deletion nothing of it; of the image there is one copy.
//
// With KILLS it is killed at each of the calls, and else at a half of them that SEED repeats.
func killedVMs(t *testing.T, kind string) {
	if os.Getenv("KILLS") != "" {
		killedVMsAt(t, kind, making, removing)
		return
	}
	seed := uint64(number("SEED", int(time.Now().UnixNano()%1e9)))
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	killedVMsAt(t, kind, half(random, making), half(random, removing))
}

// half returns a half of the points, in any order.
func half(random *rand.Rand, points []killPoint) []killPoint {
	points = slices.Clone(points)
	random.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	return points[:len(points)/2]
}

func killedVMsAt(t *testing.T, kind string, making, removing []killPoint) {
	v := newVMs(t, 1, kind)
	v.socket = v.hosts[0].Path("relay.sock")
	relay, err := hypervisor.NewRelay(v.socket, v.hosts[0].LibvirtSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(relay.Close)
	sent := make(chan struct{}, 1)
	v.images = []vmImage{v.image("blank", blank, "bios", halfAnImage(blank, sent, nil))}
	var machines []vm
	another := func() {
		machines = append(machines, vm{name: fmt.Sprintf("proxy-%d", len(machines)), kind: kind, image: "blank"})
		v.declare(setup(), machines...)
	}

	another()
	s := v.start()
	<-sent
	s.kill()
	v.images = []vmImage{v.image("blank", blank, "bios", whole(blank))}
	v.declare(setup(), machines...)
	v.killAt(relay, killPoint{"during the upload of the image", hypervisor.StorageVolUpload, hypervisor.Swallow})
	for _, point := range making {
		another()
		v.killAt(relay, point)
	}
	s = v.start()
	v.run(len(machines))
	s.kill()

	for _, point := range removing {
		machines = machines[1:]
		v.declare(setup(), machines...)
		v.killAt(relay, point)
	}
	v.start()
	v.run(len(machines))
	if images := v.on(0, "ls /var/lib/libvirt/images/fleet | grep proxyfleet-image"); len(strings.Fields(images)) != 2 {
		t.Errorf("of the image there is more or less than one copy and its marker: %q", images)
	}
}

// halfAnImage serves a half of it, tells when it has, and then serves a byte now and then, so that it does not stall, until it is to.
func halfAnImage(content []byte, half chan<- struct{}, stall <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:len(content)/2])
		w.(http.Flusher).Flush()
		select {
		case half <- struct{}{}:
		default:
		}
		for {
			select {
			case <-time.After(20 * time.Second):
				_, _ = w.Write([]byte{0})
				w.(http.Flusher).Flush()
			case <-stall:
				<-r.Context().Done()
				return
			case <-r.Context().Done():
				return
			}
		}
	}
}

// killAt starts the fleet and kills it when it makes a call.
func (v *vms) killAt(relay *hypervisor.Relay, point killPoint) {
	v.t.Helper()
	made := make(chan struct{}, 1)
	relay.Rule(func(procedure uint32) hypervisor.Verdict {
		if procedure != point.call {
			return hypervisor.Pass
		}
		select {
		case made <- struct{}{}:
		default:
		}
		return point.how
	})
	s := v.start()
	select {
	case <-made:
	case <-time.After(patience):
		v.t.Fatalf("it does not come to be killed %s", point.what)
	}
	s.kill()
	relay.Rule(nil)
}

// run waits until the host runs so many machines, each with its disk and its seed, and has nothing else.
func (v *vms) run(count int) {
	v.t.Helper()
	v.eventually(func() string {
		running := v.on(0, "virsh list --name")
		if left := strings.Fields(v.left(0)); len(strings.Fields(running)) != count || len(left) != 3*count {
			return fmt.Sprintf("the host runs %q, and has %q", running, left)
		}
		return ""
	})
}
