package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// What is said of an API server is said when it begins: once for all if it cannot be reached, and in few words.
func TestTrouble(t *testing.T) {
	down := &url.Error{Op: "Get", URL: "https://api/long?watch=true", Err: errors.New("connection refused")}
	busy := apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", schema.GroupResource{}, "", "", 0, true)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", nil)
	type request struct {
		about string
		err   error
	}
	for _, test := range []struct {
		name     string
		requests []request
		want     []string
	}{
		{"all is well", []request{{"a", nil}, {"b", nil}}, nil},
		{"nobody answers", []request{{"a", down}, {"b", down}, {"a", down}, {"b", busy}}, []string{"fail all connection refused"}},
		{"all answer again", []request{{"a", down}, {"b", down}, {"a", nil}, {"b", nil}}, []string{"fail all connection refused", "succeed all"}},
		{"one is forbidden", []request{{"a", nil}, {"b", forbidden}, {"b", forbidden}, {"b", nil}}, []string{"fail b forbidden", "succeed b"}},
		{"both are forbidden", []request{{"a", forbidden}, {"b", forbidden}}, []string{"fail a forbidden", "fail b forbidden"}},
		{"forbidden when it answers again", []request{{"b", down}, {"b", forbidden}, {"b", nil}},
			[]string{"fail all connection refused", "fail b forbidden", "succeed b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			log := &lines{}
			trouble := newTrouble(slog.New(slog.NewTextHandler(log, nil)), "all")
			for _, r := range test.requests {
				trouble.told(t.Context(), r.about, r.err)
			}
			var got []string
			for _, m := range regexp.MustCompile(`API server (\w+).*about=(\w+)(?: err=.*(connection refused|forbidden))?`).FindAllStringSubmatch(log.String(), -1) {
				got = append(got, strings.TrimSpace(strings.Join(m[1:], " ")))
			}
			if diff := cmp.Diff(test.want, got); diff != "" || strings.Contains(log.String(), "watch=") {
				t.Errorf("-want +got:\n%s\n%s", diff, log)
			}
		})
	}
}

// knowsNothing is an API server that has nothing of what it is asked for.
func knowsNothing(t *testing.T) *rest.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusNotFound, "NotFound") }))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// That there is no Lease yet is no news; that none can be made is, once, with what to do.
func TestElectionWithoutNamespace(t *testing.T) {
	log := &lines{}
	cfg := short(knowsNothing(t), "fleet", "")
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	e, err := NewElector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	term := newTerm(e)
	if _, _, err := term.Get(t.Context()); !apierrors.IsNotFound(err) || log.String() != "" {
		t.Errorf("Get: %v\n%s", err, log)
	}
	for range 2 {
		if err := term.Create(t.Context(), resourcelock.LeaderElectionRecord{}); !apierrors.IsNotFound(err) {
			t.Errorf("Create: %v", err)
		}
		_, _, _ = term.Get(t.Context())
	}
	if n := strings.Count(log.String(), "create the namespace"); n != 1 || !strings.Contains(log.String(), "the Lease crawl/fleet") {
		t.Errorf("%d times:\n%s", n, log)
	}
}

// Where the CRDs are missing, the log and Ready say how to install them.
func TestWithoutCRDs(t *testing.T) {
	log := &lines{}
	s := newStore(t, Config{REST: knowsNothing(t), Logger: slog.New(slog.NewTextHandler(log, nil))})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	const advice = "proxyfleet crds | kubectl apply --server-side -f -"
	until(t, "Ready says it", func() bool { return s.Ready() != nil && strings.Contains(s.Ready().Error(), advice) })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), advice) {
		t.Errorf("the log:\n%s", log)
	}
}
