package proxy_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/proxy"
)

func TestKeyInLogs(t *testing.T) {
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("seen", "proxy", proxy.Key{Namespace: "crawl", Name: "eu-1"})
	if !strings.Contains(out.String(), `"proxy":"crawl/eu-1"`) {
		t.Errorf("the log says %s", out.String())
	}
}
