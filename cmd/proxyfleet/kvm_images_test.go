package main

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/discovery/client"
)

// An image whose server sends a half and then nothing more fails in its time, and one whose server is slow tells how far it is. Neither
// holds other proxies up, and nothing of the half is left on the host; not when the fleet ends meanwhile, either.
func imagesOfVMs(t *testing.T) {
	v := newVMs(t, 1, "kvm", "kvm2")
	stuck, slow := bytes.Repeat([]byte("stuck"), 1<<20), bytes.Repeat([]byte("slow"), 1<<20)
	var down atomic.Bool
	half, others := make(chan struct{}, 10), make(chan struct{})
	stall := halfAnImage(stuck, half, others)
	v.images = append(v.images, v.image("stuck", stuck, "bios", func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		stall(w, r)
	}), v.image("slow", slow, "bios", slowly(slow)))
	var machines []vm
	for _, kind := range v.kinds {
		for _, image := range []string{"stuck", "slow", "blank"} {
			machines = append(machines, vm{name: image + "-" + kind, kind: kind, image: image})
		}
	}
	v.declare(setup(), machines...)
	s := v.start("--last-retry", "1s")
	progress := map[string]map[string]bool{}
	v.eventually(func() string {
		for name, p := range s.list() {
			if said := provisioned(p); strings.HasPrefix(said, "Provisioning: ImageTransfer") {
				if progress[name] == nil {
					progress[name] = map[string]bool{}
				}
				progress[name][said] = true
			}
		}
		if running := strings.Fields(v.on(0, "virsh list --name")); len(running) != 4 {
			return fmt.Sprintf("of the slow images and the blank ones there run: %q", running)
		}
		return ""
	})
	if strings.Contains(s.log.String(), "ImageStalled") {
		t.Error("the others have waited for the image that stalls")
	}
	close(others)
	for _, kind := range v.kinds {
		if len(progress["slow-"+kind]) < 2 {
			t.Errorf("how far the slow image is was told as: %v", progress["slow-"+kind])
		}
		v.eventually(func() string { // it is not said in the moment between the intent of an attempt and its answer
			if said := provisioned(s.list()["stuck-"+kind]); said != "Provisioning: ImageTransfer: image stuck: 2 of 5 MiB" {
				return "half an image is told as " + said
			}
			return ""
		})
	}

	down.Store(true) // for the next attempt
	for _, reason := range []string{"ImageStalled", "ImageUnavailable"} {
		v.eventually(func() string {
			for _, kind := range v.kinds {
				if name := "stuck-" + kind; !strings.Contains(s.log.about(name), reason) {
					return name + " is " + provisioned(s.list()[name]) + ", without a " + reason
				}
			}
			return ""
		})
	}
	if of := v.images[2]; v.of(of) != "" {
		t.Errorf("of the half image there is still: %s", v.of(of))
	}

	for range len(half) {
		<-half
	}
	down.Store(false)
	for range v.kinds {
		<-half
	}
	v.eventually(func() string {
		if of := v.of(v.images[2]); len(strings.Fields(of)) != len(v.kinds) {
			return "of the image that is on its way there is: " + of
		}
		return ""
	})
	s.signal(syscall.SIGTERM)
	if state := s.wait(); state.ExitCode() != 0 {
		t.Errorf("the fleet ends with %v while an image is on its way", state)
	}
	if of := v.of(v.images[2]); of != "" {
		t.Errorf("of the half image there is still: %s", of)
	}
}

// slowly serves content in eight pieces.
func slowly(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		for piece := range slices.Chunk(content, len(content)/8) {
			_, _ = w.Write(piece)
			w.(http.Flusher).Flush()
			select {
			case <-time.After(3 * time.Second):
			case <-r.Context().Done():
				return
			}
		}
	}
}

// provisioned returns what the condition Provisioned says.
func provisioned(p client.Proxy) string {
	for _, c := range p.Conditions {
		if c.Type == "Provisioned" {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// about returns the lines that name a proxy.
func (j *journal) about(name string) string {
	var lines []string
	for line := range strings.Lines(j.String()) {
		if strings.Contains(line, `"default/`+name+`"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// of returns the volumes of an image.
func (v *vms) of(i vmImage) string {
	v.t.Helper()
	return v.on(0, "ls /var/lib/libvirt/images/fleet | grep proxyfleet-image-"+i.sum[:24]+" || true")
}
