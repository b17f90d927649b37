package libvirt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/provider"
)

func TestRoutable(t *testing.T) {
	card := func(addresses ...string) golibvirt.DomainInterface {
		var c golibvirt.DomainInterface
		for _, a := range addresses {
			c.Addrs = append(c.Addrs, golibvirt.DomainIPAddr{Addr: a})
		}
		return c
	}
	for _, c := range []struct {
		name  string
		cards []golibvirt.DomainInterface
		want  string
	}{
		{"nothing", nil, ""},
		{"loopback and link-local only", []golibvirt.DomainInterface{card("127.0.0.1", "::1"), card("169.254.1.2", "fe80::1")}, ""},
		{"IPv4", []golibvirt.DomainInterface{card("127.0.0.1"), card("fe80::1", "10.0.0.7")}, "10.0.0.7"},
		{"IPv4 before IPv6", []golibvirt.DomainInterface{card("2001:db8::7"), card("10.0.0.7")}, "10.0.0.7"},
		{"IPv6 only", []golibvirt.DomainInterface{card("::1"), card("fe80::1", "2001:db8::7", "2001:db8::8")}, "2001:db8::7"},
		{"no address at all", []golibvirt.DomainInterface{card("nonsense", "0.0.0.0")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := routable(c.cards)
			if ok != (c.want != "") || ok && got != netip.MustParseAddr(c.want) {
				t.Errorf("the address is %v, %v, want %q", got, ok, c.want)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	paused := func(r golibvirt.DomainPausedReason) Condition { return Condition{golibvirt.DomainPaused, int32(r)} }
	off := func(r golibvirt.DomainShutoffReason) Condition { return Condition{golibvirt.DomainShutoff, int32(r)} }
	for _, c := range []struct {
		name   string
		is     Condition
		state  provider.State
		reason string
	}{
		{"running", Condition{State: golibvirt.DomainRunning}, provider.Running, ""},
		{"blocked", Condition{State: golibvirt.DomainBlocked}, provider.Running, ""},
		{"no state", Condition{State: golibvirt.DomainNostate}, provider.Provisioning, NoState},
		{"starting", paused(golibvirt.DomainPausedStartingUp), provider.Provisioning, ""},
		{"disk full", paused(golibvirt.DomainPausedIoerror), provider.Stopped, DiskFull},
		{"paused by somebody", paused(golibvirt.DomainPausedUser), provider.Stopped, Paused},
		{"never started", off(golibvirt.DomainShutoffUnknown), provider.Stopped, NotStarted},
		{"start failed", off(golibvirt.DomainShutoffFailed), provider.Stopped, NotStarted},
		{"powered off", off(golibvirt.DomainShutoffShutdown), provider.Stopped, ShutOff},
		{"crashed and off", off(golibvirt.DomainShutoffCrashed), provider.Stopped, Crashed},
		{"crashed", Condition{State: golibvirt.DomainCrashed}, provider.Stopped, Crashed},
		{"going down", Condition{State: golibvirt.DomainShutdown}, provider.Stopped, ShutOff},
		{"suspended", Condition{State: golibvirt.DomainPmsuspended}, provider.Stopped, "UnknownState"},
		{"unknown", Condition{State: 99}, provider.Stopped, "UnknownState"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var in provider.Instance
			c.is.describe(&in)
			if in.State != c.state || in.Reason != c.reason {
				t.Errorf("it is %s, %s, want %s, %s", in.State, in.Reason, c.state, c.reason)
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		code golibvirt.ErrorNumber
		text string
		want verdict
	}{
		{golibvirt.ErrNoNetwork, "", verdict{provider.ErrPermanent, NetworkMissing}},
		{golibvirt.ErrNoStoragePool, "", verdict{provider.ErrPermanent, PoolMissing}},
		{golibvirt.ErrOperationDenied, "", verdict{provider.ErrPermanent, NoRights}},
		{golibvirt.ErrNoSupport, "", verdict{provider.ErrPermanent, Unsupported}},
		{golibvirt.ErrXMLDetail, "", verdict{provider.ErrPermanent, DomainRefused}},
		{golibvirt.ErrSystemError, "cannot write: No space left on device", verdict{provider.ErrQuotaExceeded, PoolFull}},
		{golibvirt.ErrInternalError, "cannot set up guest memory 'pc.ram': Cannot allocate memory", verdict{provider.ErrQuotaExceeded, HostFull}},
		{golibvirt.ErrOperationInvalid, "storage pool 'p' is not active", verdict{provider.ErrTransient, PoolInactive}},
		{golibvirt.ErrInternalError, "pool 'p' has asynchronous jobs running.", verdict{provider.ErrTransient, PoolBusy}},
		{golibvirt.ErrOperationInvalid, "network 'n' is not active", verdict{provider.ErrTransient, NetworkDown}},
		{golibvirt.ErrInternalError, "anything", verdict{provider.ErrTransient, LibvirtError}},
	} {
		if got := verdictOn(golibvirt.Error{Code: uint32(c.code), Message: c.text}); got != c.want {
			t.Errorf("%d %q is %v, want %v", c.code, c.text, got, c.want)
		}
	}
}

func TestMarksComeBack(t *testing.T) {
	want := marks{Marks: provider.Marks{Fleet: "fleet-one", UID: "uid_1.A", Hash: "v1-<&>\"'"}, Created: time.Now().UTC().Truncate(time.Second)}
	got, err := readMarks(want.document("https://example.com/ns"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "<a/>", "<proxyfleet:instance", "<instance><created>yesterday</created></instance>"} {
		if _, err := readMarks(bad); err == nil {
			t.Errorf("%q is read as marks", bad)
		}
	}
}

func TestImagesInAPool(t *testing.T) {
	image := Image{SHA256: strings.Repeat("a", 64)}
	stem := imageStem(image)
	for _, c := range []struct {
		name    string
		volumes []string
		found   string
		left    []string
	}{
		{"none", []string{"vm.qcow2", imagePrefix + strings.Repeat("b", 24) + "-me-1"}, "", nil},
		{"complete", []string{stem + "me-1", stem + "me-1.complete"}, stem + "me-1", nil},
		{"another's counts as well", []string{stem + "you-1", stem + "you-1.complete"}, stem + "you-1", nil},
		{"unfinished", []string{stem + "me-1"}, "", []string{stem + "me-1"}},
		{"another's is not ours to remove", []string{stem + "you-1"}, "", nil},
		{"a marker alone", []string{stem + "me-1.complete"}, "", []string{stem + "me-1.complete"}},
		{"two", []string{stem + "me-2", stem + "me-2.complete", stem + "me-1", stem + "me-1.complete"}, stem + "me-1", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := findImage(image, c.volumes); got != c.found {
				t.Errorf("the image is %q, want %q", got, c.found)
			}
			if diff := cmp.Diff(c.left, leftovers(image, "me", c.volumes)); diff != "" {
				t.Errorf("leftovers (-want +got):\n%s", diff)
			}
		})
	}
	if one, two := newVolume(image, "me"), newVolume(image, "me"); one == two || !strings.HasPrefix(one, stem+"me-") {
		t.Errorf("transfers get the volumes %s and %s", one, two)
	}
}

// Why an image's server does not answer is told with its host, and with no more of a URL, whosever that is: it may hold a token.
func TestImageThatIsUnavailable(t *testing.T) {
	const nowhere = "127.0.0.1:1"
	leads := func(to string) string {
		return imageServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		})
	}
	for _, c := range []struct{ name, server, want string }{
		{"server is down", "http://" + nowhere, "image disk: " + nowhere + ": dial tcp"},
		{"leads to one that is down", leads("http://" + nowhere + "/hunter2?token=hunter2"), "image disk: " + nowhere + ": dial tcp"},
		{"leads to no URL", leads("http://[/hunter2?token=hunter2"), "it leads to what is no URL"},
		{"leads to no host", leads("http:///hunter2?token=hunter2"), "no Host"},
		{"leads in a circle", leads("/hunter2?token=hunter2"), "10 redirects"},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := Image{Name: "disk", URL: c.server + "/hunter2?token=hunter2"}
			_, _, err := (&transfer{image: image, http: newHTTPClient()}).get(t.Context())
			wantFailure(t, err, provider.ErrTransient, ImageUnavailable)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("it is %v, want %q and nothing of what was asked for", err, c.want)
			}
		})
	}
}

// An image of which nothing comes for a minute is given up. One that is there is not, however long the host then takes to write it down
// and to look at it.
func TestStalledImage(t *testing.T) {
	for _, c := range []struct {
		name    string
		pauses  []time.Duration // before each byte
		takes   time.Duration   // of the host, after the last one
		stalled bool
	}{
		{"quick", []time.Duration{0, 0}, 0, false},
		{"slow", []time.Duration{59 * time.Second, 59 * time.Second}, 0, false},
		{"nothing comes", []time.Duration{61 * time.Second}, 0, true},
		{"nothing more comes", []time.Duration{0, 61 * time.Second}, 0, true},
		{"a slow host", []time.Duration{0, 0}, 10 * time.Minute, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				body, server := io.Pipe()
				go func() {
					for _, pause := range c.pauses {
						<-time.After(pause)
						_, _ = server.Write([]byte{1})
					}
					_ = server.Close()
				}()
				source := new(transfer).source(body, cancel)
				defer source.stalled.Stop()
				if n, err := io.Copy(io.Discard, source); int(n) != len(c.pauses) || err != nil {
					t.Errorf("%d bytes came, %v", n, err)
				}
				<-time.After(c.takes)
				if c.stalled {
					wantFailure(t, context.Cause(ctx), provider.ErrTransient, ImageStalled)
				} else if ctx.Err() != nil {
					t.Errorf("it is given up: %v", context.Cause(ctx))
				}
			})
		})
	}
}

// A transfer that failed has failed for all who wait for it: none of them has it begun anew, until as much time has passed as it took, or
// a minute. One that failed for want of room failed for those who need as much; for who needs less, another one begins.
func TestTransferFailsForWhoNeedsAsMuch(t *testing.T) {
	full := wrong(provider.ErrQuotaExceeded, PoolFull, "full")
	type asked struct {
		after time.Duration
		room  uint64
		told  bool
		begun int
	}
	for _, c := range []struct {
		name  string
		takes time.Duration
		asked []asked
	}{
		{"in a while", 20 * time.Second, []asked{
			{0, 10, false, 1}, // nobody has failed yet
			{19 * time.Second, 10, false, 1},
			{2 * time.Second, 9, false, 2}, // what failed was for 10
			{21 * time.Second, 9, true, 2},
			{0, 9, true, 2},
			{0, 20, true, 2},
			{18 * time.Second, 9, true, 2},
			{time.Second, 9, false, 3}, // it took as long
			{30 * time.Second, 9, true, 3},
		}},
		{"at once", 0, []asked{
			{0, 10, false, 1},
			{time.Hour, 10, true, 1}, // somebody is told in any case
			{0, 10, false, 2},
			{0, 10, true, 2},
			{0, 9, false, 3},
		}},
		{"after long", 20 * time.Minute, []asked{
			{0, 10, false, 1},
			{21 * time.Minute, 10, true, 1},
			{0, 10, false, 2},
			{20*time.Minute + 59*time.Second, 10, true, 2},
			{time.Second, 10, false, 3},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := 0
				all := newTransfers(slog.New(slog.DiscardHandler), func(_ HostConfig, _ Image, room uint64) *transfer {
					begun++
					return &transfer{room: room, most: time.Hour, dial: func(context.Context) (*Conn, error) { <-time.After(c.takes); return nil, full }}
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go all.run(ctx)
				for i, a := range c.asked {
					<-time.After(a.after)
					synctest.Wait()
					_, err := all.ask(HostConfig{}, Image{}, a.room)
					if told := errors.Is(err, full); told != a.told || begun != a.begun {
						t.Errorf("%d: who needs %d is told %v, and %d transfers have begun, want %v, %d", i, a.room, err, begun, a.told, a.begun)
					}
					synctest.Wait()
				}
				<-time.After(c.takes)
			})
		})
	}
}

// Who asks when a transfer is complete has looked before it was. Another one begins for who has looked since, and asks again.
func TestTransferThatIsComplete(t *testing.T) {
	begun := 0
	all := newTransfers(slog.New(slog.DiscardHandler), func(HostConfig, Image, uint64) *transfer {
		begun++
		return &transfer{}
	})
	all.byKey[transferKey{}] = &job{transfer: &transfer{}, ended: true}
	for want := range 2 {
		if _, err := all.ask(HostConfig{}, Image{}, 0); err != nil || begun != want {
			t.Errorf("%d transfers have begun, want %d: %v", begun, want, err)
		}
	}
}

// What cannot be said to a machine is the request's fault, and is not tried again.
func TestSeedThatSaysTheImpossible(t *testing.T) {
	for name, c := range map[string]struct {
		config  Config
		request provider.Request
	}{
		"no hostname":  {Config{Proxy: none}, provider.Request{Name: "a b"}},
		"no open port": {Config{Proxy: squid}, provider.Request{Name: "proxy-1", Port: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.config.seedISO(c.request, "i-1")
			wantFailure(t, err, provider.ErrPermanent, provider.UnsupportedField)
		})
	}
}

func TestExactReader(t *testing.T) {
	for size, want := range map[uint64]bool{9: false, 10: true, 11: false} {
		_, err := io.ReadAll(&exactReader{r: iotest.OneByteReader(strings.NewReader("0123456789")), left: size})
		if (err == nil) != want {
			t.Errorf("10 bytes where %d were announced: %v", size, err)
		}
	}
}

func TestFramesOfImpossibleLength(t *testing.T) {
	frame := func(size uint32, body int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), bytes.Repeat([]byte{1}, body)...)
	}
	good := append(frame(28, 24), frame(100, 96)...)
	for name, c := range map[string]struct {
		sent []byte
		want int
	}{
		"good":      {good, len(good)},
		"too short": {append(bytes.Clone(good), frame(27, 24)...), len(good)},
		"too long":  {append(bytes.Clone(good), frame(64<<20, 24)...), len(good)},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Write(c.sent)
				_ = theirs.Close()
			}()
			got, err := io.ReadAll(iotest.OneByteReader(&framedConn{Conn: ours}))
			if bad := len(c.sent) != c.want; bad != (err != nil) {
				t.Errorf("the error is %v", err)
			}
			if !bytes.HasPrefix(c.sent, got) || len(got) < c.want || len(got) > c.want+4 {
				t.Errorf("%d bytes were read, want %d and no more than a length", len(got), c.want)
			}
		})
	}
}

func TestConfigProblems(t *testing.T) {
	good := Config{
		Hosts:        []HostConfig{{Name: "one", Address: "hv1", User: "u", KeyFile: "/k", KnownHostsFile: "/h"}},
		Images:       []Image{{Name: "debian", URL: "https://example.com/d.qcow2", SHA256: strings.Repeat("0", 64)}},
		MachineTypes: []MachineType{{Name: "small", CPUs: 1, MemoryMiB: 512}},
	}.withDefaults([]string{Lease})
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	if good.Hosts[0].Address != "hv1:22" || good.Images[0].Firmware != "efi" || good.DomainTypes[0] != "kvm" {
		t.Errorf("the defaults are %+v", good)
	}
	err := Config{
		Hosts:       []HostConfig{{Name: "a b", Socket: "relative"}, {Name: "x"}, {Name: "x"}},
		Images:      []Image{{Name: "i", URL: "ftp://example.com", SHA256: "ABC", Firmware: "coreboot"}},
		DomainTypes: []string{"xen"}, AddressSources: []string{"dns"}, Proxy: "nginx",
	}.withDefaults(nil).validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"hosts[0].name", "hosts[0].address: required", "hosts[0].user: required", "hosts[0].keyFile: required", "hosts[0].knownHostsFile: required",
		"hosts[0].socket: want an absolute path", "hosts[2].name: another has it already", "images[0].url", "images[0].sha256", "images[0].firmware",
		"machineTypes: want at least one", `domainTypes: "xen"`, `addressSources: "dns"`, `proxy: "nginx"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}
