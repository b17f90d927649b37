package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/provider/monitor"
	"github.com/proxyfleet/fleet/proxy"
)

// managedBy is the label of the ProviderHealth objects that a HealthWriter made, with the value component.
const managedBy = "app.kubernetes.io/managed-by"

// HealthConfig says which providers a [HealthWriter] writes about.
type HealthConfig struct {
	// REST is how the API server is reached. Required.
	REST *rest.Config
	// Types are the types of the providers that are checked, by the names of the providers. Defaults to none.
	Types map[string]string
	// Fleet is the identity of the fleet whose providers they are. The objects bear it as their [FleetAnnotation], and those of
	// another fleet are left alone. Defaults to none: all objects are this fleet's.
	Fleet string
	// Timeout bounds each request. Defaults to 10s.
	Timeout time.Duration
	// Logger hears of providers that cannot have an object, or whose object is another fleet's. Defaults to one that discards.
	Logger *slog.Logger
}

// HealthWriter shows the results of a monitor as ProviderHealth objects, which it makes when there are none. It watches nothing,
// and needs the rights to list, get, create and delete them, and to patch their status. Only the replica that leads writes.
type HealthWriter struct {
	cfg    HealthConfig
	client rest.Interface

	mu     sync.Mutex
	unseen map[string]bool // providers of which it was said that they have no object
}

var _ monitor.Sink = (*HealthWriter)(nil)

// NewHealthWriter makes a writer. It sends no request.
func NewHealthWriter(cfg HealthConfig) (*HealthWriter, error) {
	if cfg.REST == nil {
		return nil, errors.New("health writer: REST is required")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("health writer: %w", err)
	}
	client, err := rest.HTTPClientFor(cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("health writer: REST: %w", err)
	}
	w := &HealthWriter{cfg: cfg, unseen: map[string]bool{}}
	if w.client, err = groupClient(cfg.REST, client, scheme); err != nil {
		return nil, fmt.Errorf("health writer: REST: %w", err)
	}
	return w, nil
}

// Prune deletes the objects that a HealthWriter made of this fleet's providers that are not checked any more: all of them where
// Types is empty. Those without a mark count as this fleet's: they are from an earlier release. It is for the start of a term.
func (w *HealthWriter) Prune(ctx context.Context) error {
	list := &v1alpha1.ProviderHealthList{}
	err := w.send(ctx, w.client.Get().VersionedParams(&metav1.ListOptions{LabelSelector: managedBy + "=" + component}, metav1.ParameterCodec), list)
	if err != nil {
		return fmt.Errorf("list of ProviderHealths: %w", err)
	}
	var problems []error
	for _, h := range list.Items {
		if _, checked := w.cfg.Types[h.Name]; checked || w.foreign(&h) {
			continue
		}
		if err := w.remove(ctx, &h); err != nil {
			problems = append(problems, fmt.Errorf("ProviderHealth %s of a provider that is not checked any more: %w", h.Name, err))
		}
	}
	return errors.Join(problems...)
}

// foreign says whether an object is another fleet's.
func (w *HealthWriter) foreign(h *v1alpha1.ProviderHealth) bool {
	keeper := h.Annotations[FleetAnnotation]
	return w.cfg.Fleet != "" && keeper != "" && keeper != w.cfg.Fleet
}

// unmarked says whether a HealthWriter of an earlier release made an object, for nobody knows which fleet.
func (w *HealthWriter) unmarked(h *v1alpha1.ProviderHealth) bool {
	return w.cfg.Fleet != "" && h.Annotations[FleetAnnotation] == "" && h.Labels[managedBy] == component
}

// remove deletes an object, and not one that somebody made in its place.
func (w *HealthWriter) remove(ctx context.Context, h *v1alpha1.ProviderHealth) error {
	err := w.send(ctx, w.client.Delete().Name(h.Name).Body(metav1.NewPreconditionDeleteOptions(string(h.UID))), nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Report writes the status of one provider: an uncached read, the object if there is none, and one patch. Where the object is
// another fleet's, it says so once in the log, and is no failure.
func (w *HealthWriter) Report(ctx context.Context, r monitor.Result) error {
	if !r.CanCheck || r.Checked.IsZero() || !w.named(ctx, r.Provider) {
		return nil
	}
	h, err := w.object(ctx, r.Provider)
	if err != nil {
		return fmt.Errorf("ProviderHealth %s: %w", r.Provider, err)
	}
	if w.foreign(h) {
		if w.first(r.Provider) {
			w.cfg.Logger.WarnContext(ctx, "provider has no ProviderHealth, for that of its name is another fleet's: give one of the two providers another name, or delete the object if that fleet is gone",
				"provider", r.Provider, "keeper", h.Annotations[FleetAnnotation], "fleet", w.cfg.Fleet)
		}
		return nil
	}
	body, err := json.Marshal(w.status(r))
	if err != nil {
		return fmt.Errorf("ProviderHealth %s: %w", r.Provider, err)
	}
	if err := w.send(ctx, w.client.Patch(types.MergePatchType).Name(r.Provider).SubResource("status").Body(body), nil); err != nil {
		return fmt.Errorf("status of ProviderHealth %s: %w", r.Provider, err)
	}
	return nil
}

// object returns the object of a provider, and makes it if there is none. One without a mark is made anew: the rights that a fleet
// has do not suffice to change it.
func (w *HealthWriter) object(ctx context.Context, name string) (*v1alpha1.ProviderHealth, error) {
	h, err := w.read(ctx, name)
	switch {
	case err == nil && w.unmarked(h):
		if err := w.remove(ctx, h); err != nil {
			return nil, err
		}
	case !apierrors.IsNotFound(err):
		return h, err
	}
	if h, err = w.create(ctx, name); apierrors.IsAlreadyExists(err) {
		return w.read(ctx, name) // somebody was faster
	}
	return h, err
}

func (w *HealthWriter) read(ctx context.Context, name string) (*v1alpha1.ProviderHealth, error) {
	h := &v1alpha1.ProviderHealth{}
	return h, w.send(ctx, w.client.Get().Name(name), h)
}

func (w *HealthWriter) create(ctx context.Context, name string) (*v1alpha1.ProviderHealth, error) {
	h := &v1alpha1.ProviderHealth{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{managedBy: component}}}
	if w.cfg.Fleet != "" {
		h.Annotations = map[string]string{FleetAnnotation: w.cfg.Fleet}
	}
	return h, w.send(ctx, w.client.Post().Body(h), nil)
}

// named says whether a provider can have an object, and says so once if it cannot.
func (w *HealthWriter) named(ctx context.Context, name string) bool {
	problems := validation.IsDNS1123Subdomain(name)
	if len(problems) == 0 {
		return true
	}
	if w.first(name) {
		w.cfg.Logger.WarnContext(ctx, "provider has no ProviderHealth, for its name is not one of an object", "provider", name, "err", problems[0])
	}
	return false
}

// first says whether it is to be said now that a provider has no object: once.
func (w *HealthWriter) first(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.unseen[name]
	w.unseen[name] = true
	return !said
}

// status is the merge patch that makes the status what the result says.
func (w *HealthWriter) status(r monitor.Result) patch {
	targets := make([]v1alpha1.TargetHealth, len(r.Targets))
	for i, t := range r.Targets {
		targets[i] = v1alpha1.TargetHealth{Name: t.Target, Ready: condition(t.Ready), Reason: t.Reason, Message: t.Message,
			Details: t.Details, LastTransitionTime: proxy.At(t.Since)}
	}
	return patch{"status": patch{
		"type":          w.cfg.Types[r.Provider],
		"ready":         condition(r.Ready() == len(r.Targets)),
		"targetsReady":  fmt.Sprintf("%d/%d", r.Ready(), len(r.Targets)),
		"lastCheckTime": proxy.At(r.Checked),
		"targets":       targets,
	}}
}

func condition(is bool) proxy.ConditionStatus {
	if is {
		return proxy.True
	}
	return proxy.False
}

// send sends a request about ProviderHealths, with a deadline, and reads the answer into what is given, nil for nothing.
func (w *HealthWriter) send(ctx context.Context, r *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	answer := r.Resource("providerhealths").Do(ctx)
	if into == nil {
		return answer.Error()
	}
	return answer.Into(into)
}
