package serving_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/serving"
)

// A replica speaks to who shows its own certificate, as that is at the moment, and to nobody else.
func TestPeers(t *testing.T) {
	ours, theirs := newPair(t), newPair(t)
	config := func(p pair) serving.Config {
		dir := t.TempDir()
		c := serving.Config{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
		write(t, c.CertFile, p.cert)
		write(t, c.KeyFile, p.key)
		return c
	}
	mine := config(ours)
	follower, leader, other := serve(t, mine), serve(t, config(ours)), serve(t, config(theirs))
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	ask := func(url string) string {
		peers := follower.Peers()
		defer peers.CloseIdleConnections()
		answer, err := (&http.Client{Transport: peers, Timeout: time.Minute}).Get(url)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		return answer.Status
	}
	const refused = "it shows another TLS certificate than this replica"
	if got := ask(leader.URL()); got != "200 OK" {
		t.Errorf("the leader: %s", got)
	}
	if got := ask(other.URL()); !strings.Contains(got, refused) {
		t.Errorf("who shows another certificate: %s", got)
	}
	if got := ask("https://" + plain.Listener.Addr().String()); !strings.Contains(got, "server gave HTTP response") {
		t.Errorf("who shows none: %s", got)
	}
	write(t, mine.CertFile, theirs.cert) // it was renewed, and the leader does not have it yet
	write(t, mine.KeyFile, theirs.key)
	if got := ask(leader.URL()); !strings.Contains(got, refused) {
		t.Errorf("who shows the last certificate: %s", got)
	}
	if got := ask(other.URL()); got != "200 OK" {
		t.Errorf("who shows the renewed certificate: %s", got)
	}
}

// No proxy of the environment sees what replicas say to each other, and nobody is waited for without an end.
func TestPeersAreAskedDirectly(t *testing.T) {
	peers := serve(t, serving.Config{}).Peers()
	if peers.Proxy != nil || peers.TLSHandshakeTimeout == 0 || peers.IdleConnTimeout == 0 || peers.TLSClientConfig != nil {
		t.Errorf("without TLS: %+v", peers)
	}
}
