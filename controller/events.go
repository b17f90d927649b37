package controller

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/proxy"
)

// eventMessage is how many bytes the message of an Event may have.
const eventMessage = 1000

// events writes Events about proxies. Those that come too fast are dropped: the status has what counts.
type events struct {
	mu       sync.Mutex
	recorder record.EventRecorder // nil while nobody writes them
}

func newEvents() *events { return &events{} }

// run writes what is told until ctx ends.
func (e *events) run(ctx context.Context, core typedcorev1.CoreV1Interface, timeout time.Duration) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(eventSink{ctx, core.Events(""), timeout})
	e.record(broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: component}))
	<-ctx.Done()
	e.record(nil)
	broadcaster.Shutdown()
}

// component is the name of this program in what it writes for others to see.
const component = "proxyfleet"

func (e *events) record(r record.EventRecorder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorder = r
}

// tell writes what is new in a status: another phase, and a trouble that began or changed.
func (e *events) tell(was, now *object) {
	e.mu.Lock()
	recorder := e.recorder
	e.mu.Unlock()
	if recorder == nil {
		return
	}
	about := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion().String(), Kind: proxyKind().Kind,
		Namespace: now.Namespace, Name: now.Name, UID: now.UID, ResourceVersion: now.ResourceVersion}
	for _, n := range newsOf(was.status, now.status) {
		recorder.Event(about, n.kind, n.reason, clipped(n.message))
	}
}

// news is what an Event says.
type news struct{ kind, reason, message string }

// newsOf compares two statuses. A condition that says no more than the phase is no news beside it.
func newsOf(was, now proxy.Status) []news {
	var all []news
	for _, c := range now.Conditions {
		old, _ := was.Condition(c.Type)
		began := c.Status == proxy.False && c.Reason != "" && (old.Status != c.Status || old.Reason != c.Reason)
		said := c.Message != "" || c.Reason != string(now.Phase)
		if began && said {
			all = append(all, news{kindOf(c), c.Reason, lack(c)})
		}
		if doubt := doubtOf(c); doubt != "" && doubt != doubtOf(old) {
			all = append(all, news{corev1.EventTypeWarning, doubt, lack(c)})
		}
	}
	if was.Phase != now.Phase && now.Phase != "" {
		all = append(all, turned(was.Phase, now.Phase))
	}
	return all
}

// turned tells of another phase.
func turned(was, now proxy.Phase) news {
	kind := corev1.EventTypeNormal
	if now == proxy.Failed || now == proxy.Unhealthy {
		kind = corev1.EventTypeWarning
	}
	message := "it is " + string(now)
	if was != "" {
		message += ", and was " + string(was)
	}
	return news{kind, string(now), message}
}

// lack says in words what a condition does.
func lack(c proxy.Condition) string {
	if c.Message == "" {
		return "it is not " + string(c.Type)
	}
	return fmt.Sprintf("%s: %s", c.Type, c.Message)
}

// inTurn opens what the condition says of a proxy that is to be replaced, and waits as it should.
const inTurn = "replacement waits for its turn"

// doubtOf is the reason of what Provisioned says of an instance that is there, and not as it is declared: the word that
// opens its message, or that of an edit which is not applied. It is "" where there is nothing to say.
func doubtOf(c proxy.Condition) string {
	if c.Type != proxy.Provisioned || c.Status != proxy.True || c.Message == "" || strings.HasPrefix(c.Message, inTurn) {
		return ""
	}
	edit, refused := strings.CutPrefix(c.Message, "the edit is not applied: ")
	if word, _, _ := strings.Cut(edit, ": "); reasonWord.MatchString(word) {
		return word
	}
	if refused {
		return "EditNotApplied"
	}
	return "NotAsDeclared"
}

var reasonWord = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// kindOf says whether a condition that is False is a trouble. While an instance comes or goes it is not.
func kindOf(c proxy.Condition) string {
	switch c.Reason {
	case "Provisioning", "Replacing", "Deleting", "Terminating":
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// clipped cuts a message to what an Event may have.
func clipped(message string) string {
	if len(message) <= eventMessage {
		return message
	}
	cut := eventMessage
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "…"
}

// eventSink sends Events, each with a deadline.
type eventSink struct {
	ctx     context.Context //nolint:containedctx // the interface passes none, and all ends with this one
	events  typedcorev1.EventInterface
	timeout time.Duration
}

// Create sends a new Event.
func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	return s.events.CreateWithEventNamespaceWithContext(ctx, e)
}

// Update replaces an Event.
func (s eventSink) Update(e *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	return s.events.UpdateWithEventNamespaceWithContext(ctx, e)
}

// Patch counts an Event once more.
func (s eventSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	return s.events.PatchWithEventNamespaceWithContext(ctx, e, data)
}
