package libvirttest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/providertest"
	"github.com/proxyfleet/fleet/secret"
)

// Conformance runs the suite of providers over libvirt's test driver. What that driver lacks, uploads, and what no libvirtd does on
// demand, is done by the relay.
func (b *Bed) Conformance(t *testing.T) {
	b.Start(t)
	providertest.Run(t, func(t testing.TB) providertest.Harness {
		d := b.TestDriver(t)
		return providertest.Harness{
			Open:     d.Open,
			Request:  DriverRequest,
			Outlives: true,
			Settle:   time.Minute,
			Refused: map[string]func(*provider.Request){
				"placement.zone":        func(r *provider.Request) { r.Placement.Zone = "elsewhere" },
				"placement.machineType": func(r *provider.Request) { r.Placement.MachineType = "huge" },
				"placement.image":       func(r *provider.Request) { r.Placement.Image = "unknown" },
				"placement.diskSizeGb":  func(r *provider.Request) { r.Placement.DiskSizeGb = -1 },
				"credentials":           func(r *provider.Request) { r.Credentials.Username = secret.New("a:user-with-a-colon") },
			},
			Plant:  d.plant,
			Inject: d.inject,
		}
	})
}

// ConformanceOverQEMU runs a few cases of the suite, or, with CONFORMANCE=all, the whole of it: over machines that boot, a minute for
// what the test driver does in a second.
func (b *Bed) ConformanceOverQEMU(t *testing.T, few ...string) {
	b.Start(t)
	providertest.Run(t, func(t testing.TB) providertest.Harness {
		if name := path.Base(t.Name()); os.Getenv("CONFORMANCE") != "all" && !slices.Contains(few, name) {
			t.Skip("takes long: CONFORMANCE=all runs it")
		}
		b.Clear(t)
		t.Cleanup(func() { b.Clear(t) })
		d := b.QEMU(t)
		return providertest.Harness{
			Open:     d.Open,
			Request:  func() provider.Request { return provider.Request{Port: 3128, CloudInit: secret.New(cloudInit)} },
			Outlives: true,
			Settle:   5 * time.Minute,
			Inject:   d.inject,
		}
	})
}

// cloudInit has the tiny guest run tinyproxy.
const cloudInit = `#cloud-config
write_files:
- path: /etc/tinyproxy.conf
  content: |
    Port 3128
    Timeout 60
    DisableViaHeader Yes
    StatFile "/usr/share/tinyproxy/stats.html"
runcmd:
- [tinyproxy, -c, /etc/tinyproxy.conf]
`

// Life makes a machine, uses its proxy, and deletes it: nothing is left.
func (b *Bed) Life(t *testing.T) {
	b.Start(t)
	p := b.Open(t, "fleet-life", b.Config(t, ServeImage(t, b.Image)))
	Run(t, p)
	target := Serve(t, b.Gateway, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))

	in := Made(t, p, Request("fleet-life", "uid-1"))
	Await(t, 5*time.Minute, "the machine has an address", func() (_ bool, err error) {
		in, err = p.Get(t.Context(), RefOf(in))
		return in.State == provider.Running, fmt.Errorf("%s %s %w", in.State, in.Message, err)
	})
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: in.Host + ":3128"}), DisableKeepAlives: true,
	}}
	Await(t, 5*time.Minute, "its proxy answers", func() (bool, error) {
		response, err := client.Get(target) //nolint:noctx // the client has a timeout
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body) == "hello", err
	})
	if err := p.Delete(t.Context(), RefOf(in)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Get(t.Context(), RefOf(in)); provider.ClassOf(err) != provider.ErrNotFound {
		t.Errorf("Get after Delete: %v, want not found", err)
	}
	b.WantNothingOf(t, provider.Name("fleet-life", "uid-1"))
}
