package controller

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/proxy"
)

// statusWith makes one with a condition.
func statusWith(phase proxy.Phase, of proxy.ConditionType, is proxy.ConditionStatus, reason, message string) proxy.Status {
	s := proxy.Status{Phase: phase}
	s.SetCondition(proxy.Condition{Type: of, Status: is, Reason: reason, Message: message})
	return s
}

func TestNews(t *testing.T) {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	const refused = `the edit is not applied: UnknownProvider: no provider "clouds" is configured`
	for _, c := range []struct {
		name     string
		was, now proxy.Status
		want     []news
	}{
		{"nothing new", statusWith(proxy.Ready, proxy.Healthy, proxy.True, "ProbeSucceeded", "204"),
			statusWith(proxy.Ready, proxy.Healthy, proxy.True, "ProbeSucceeded", "200"), nil},
		{"the first phase", proxy.Status{}, proxy.Status{Phase: proxy.Pending}, []news{{normal, "Pending", "it is Pending"}}},
		{"progress", proxy.Status{}, statusWith(proxy.Provisioning, proxy.Provisioned, proxy.False, "Provisioning", "booting"),
			[]news{{normal, "Provisioning", "Provisioned: booting"}, {normal, "Provisioning", "it is Provisioning"}}},
		{"a trouble begins", statusWith(proxy.Ready, proxy.Healthy, proxy.True, "ProbeSucceeded", ""),
			statusWith(proxy.Unhealthy, proxy.Healthy, proxy.False, "ProbeFailed", "proxy refused"),
			[]news{{warning, "ProbeFailed", "Healthy: proxy refused"}, {warning, "Unhealthy", "it is Unhealthy, and was Ready"}}},
		{"another message", statusWith(proxy.Unhealthy, proxy.Healthy, proxy.False, "ProbeFailed", "a"),
			statusWith(proxy.Unhealthy, proxy.Healthy, proxy.False, "ProbeFailed", "b"), nil},
		{"another reason", statusWith(proxy.Pending, proxy.Provisioned, proxy.False, "QuotaExceeded", "full"),
			statusWith(proxy.Failed, proxy.Provisioned, proxy.False, "PermanentError", "no such type"),
			[]news{{warning, "PermanentError", "Provisioned: no such type"}, {warning, "Failed", "it is Failed, and was Pending"}}},
		{"a start that goes well", proxy.Status{}, statusWith(proxy.Provisioning, proxy.Provisioned, proxy.False, "Provisioning", ""),
			[]news{{normal, "Provisioning", "it is Provisioning"}}},
		{"a trouble without a message", statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", ""),
			statusWith(proxy.Pending, proxy.Provisioned, proxy.False, "InstanceGone", ""),
			[]news{{warning, "InstanceGone", "it is not Provisioned"}, {normal, "Pending", "it is Pending, and was Ready"}}},
		{"an edit is refused", statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", ""),
			statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", refused),
			[]news{{warning, "UnknownProvider", "Provisioned: " + refused}}},
		{"an edit is refused without a word", statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", ""),
			statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", "the edit is not applied: no way"),
			[]news{{warning, "EditNotApplied", "Provisioned: the edit is not applied: no way"}}},
		{"it is refused still", statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", refused+"!"),
			statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", refused), nil},
		{"it stays, and its provider fails", statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", ""),
			statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", "dial: refused"),
			[]news{{warning, "NotAsDeclared", "Provisioned: dial: refused"}}},
		{"it waits for its turn", statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", ""),
			statusWith(proxy.Ready, proxy.Provisioned, proxy.True, "Created", "replacement waits for its turn: 1 of at most 1"), nil},
		{"it is well again", statusWith(proxy.Unhealthy, proxy.Healthy, proxy.False, "ProbeFailed", "a"),
			statusWith(proxy.Ready, proxy.Healthy, proxy.True, "ProbeSucceeded", ""), []news{{normal, "Ready", "it is Ready, and was Unhealthy"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, newsOf(c.was, c.now), cmp.AllowUnexported(news{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestClipped(t *testing.T) {
	if got := clipped(strings.Repeat("é", 1000)); len(got) > eventMessage+3 || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid: %v", len(got), utf8.ValidString(got))
	}
	if got := clipped("short"); got != "short" {
		t.Errorf("got %q", got)
	}
}

// Events stand where kubectl shows them, and writing what is not new makes none.
func TestEvents(t *testing.T) {
	cfg := restOf(t, sharedCluster(t).Kubeconfig())
	d := people(t, cfg)
	p := d.declare(t, key("a"), external())
	s, _ := runStore(t, Config{REST: cfg})
	until(t, "events are written", func() bool {
		s.events.mu.Lock()
		defer s.events.mu.Unlock()
		return s.events.recorder != nil
	})
	for _, phase := range []proxy.Phase{proxy.Probing, proxy.Probing, proxy.Ready} {
		p.Status.Phase = phase
		p, _ = must(t)(s.UpdateStatus(t.Context(), p))
	}
	var reasons []string
	until(t, "both events are there", func() bool {
		reasons = nil
		list, err := s.core.Events("crawl").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + p.UID})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Source.Component != "proxyfleet" || e.Count != 1 {
				t.Errorf("an Event of %q that was counted %d times", e.Source.Component, e.Count)
			}
			reasons = append(reasons, e.Reason)
		}
		return len(reasons) == 2
	})
	slices.Sort(reasons)
	if want := []string{"Probing", "Ready"}; !slices.Equal(reasons, want) {
		t.Errorf("Events %v, want %v", reasons, want)
	}
}
