package pod

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/proxyfleet/fleet/provider"
)

// pods makes instances that are pods.
type pods struct {
	fleet    string
	settings settings
	client   *client
	log      *slog.Logger
}

var (
	_ provider.Provider    = (*pods)(nil)
	_ provider.Delayer     = (*pods)(nil)
	_ provider.Checker     = (*pods)(nil)
	_ provider.Constructor = New
)

// New opens the provider: it reads the configuration, a [Config], and calls nobody yet.
func New(env provider.Environment, raw json.RawMessage) (provider.Provider, error) {
	s, err := decode(raw)
	if texts := validation.IsValidLabelValue(env.Fleet); env.Fleet == "" || len(texts) > 0 {
		err = errors.Join(err, fmt.Errorf("fleetID: %q fits into no label: want 1 to 63 letters, digits, '-', '_' and '.', "+
			"the first and last of them no sign", env.Fleet))
	}
	if err != nil {
		return nil, err
	}
	log := env.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &pods{fleet: env.Fleet, settings: s, client: &client{settings: s}, log: log}, nil
}

// Delays are short: what the API server has accepted is what it answers.
func (p *pods) Delays() provider.Delays { return p.settings.delays }

// Plan checks all that can be checked without the cluster, so that a bad edit harms nothing that runs.
func (p *pods) Plan(r provider.Request) (string, error) {
	if err := p.settings.refuse("plan", r); err != nil {
		return "", err
	}
	return idOf(p.settings.Namespace, r.Name), nil
}

// Create makes the pod, or meets it, and then gives it what it waits for.
func (p *pods) Create(ctx context.Context, r provider.Request) (provider.Instance, error) {
	const op = "create"
	if err := p.settings.refuse(op, r); err != nil {
		return provider.Instance{}, err
	}
	if err := provider.Interrupted(ctx, op); err != nil {
		return provider.Instance{}, err
	}
	pod, err := p.client.createPod(ctx, p.settings.pod(r))
	if exists(err) {
		if pod, err = p.meet(ctx, op, r); err != nil {
			return provider.Instance{}, err
		}
	}
	if err != nil {
		return provider.Instance{}, failure(ctx, op, err)
	}
	// One with another hash has other secrets; whoever compares the hashes deletes it.
	if gated(pod) && pod.DeletionTimestamp == nil && marksOf(pod).Hash == r.Marks.Hash {
		if pod, err = p.finish(ctx, op, r, pod); err != nil {
			return provider.Instance{}, err
		}
	}
	return p.settings.instance(pod, time.Now()), nil
}

// meet looks at who has the name.
func (p *pods) meet(ctx context.Context, op string, r provider.Request) (*corev1.Pod, error) {
	pod, err := p.client.getPod(ctx, p.settings.Namespace, r.Name)
	if notFound(err) {
		return nil, &provider.Error{Op: op, Class: provider.ErrTransient, Reason: notVisible,
			Err: errors.New("the name was taken a moment ago, and the pod that had it is gone")}
	}
	if err != nil {
		return nil, failure(ctx, op, err)
	}
	if !p.owns(pod, r.Marks.UID) {
		return nil, &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.NameTaken,
			Err: fmt.Errorf("%s belongs to somebody else: its labels are not those of this proxy", idOf(pod.Namespace, pod.Name))}
	}
	return pod, nil
}

func (p *pods) owns(pod *corev1.Pod, uid string) bool {
	marks := marksOf(pod)
	return pod.Labels[managedLabel] == "true" && marks.Fleet == p.fleet && marks.UID == uid
}

// finish makes the Secret that a pod waits for, and opens the gate. A Secret that is there already is that of an earlier attempt for
// this pod, whose name nobody else has. A pod that cannot be finished before somebody repairs something is taken back.
func (p *pods) finish(ctx context.Context, op string, r provider.Request, pod *corev1.Pod) (*corev1.Pod, error) {
	secret, err := p.settings.secret(r, pod)
	if err != nil {
		return nil, &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.UnsupportedField, Err: err}
	}
	if err := p.client.createSecret(ctx, secret); err != nil && !exists(err) {
		return nil, p.takeBack(ctx, pod, ofSecret(failure(ctx, op, err)))
	}
	open, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": pod.ResourceVersion},
		"spec":     map[string]any{"schedulingGates": []any{map[string]any{"name": gate, "$patch": "delete"}}},
	})
	if err != nil {
		return nil, failure(ctx, op, err)
	}
	finished, err := p.client.patchPod(ctx, pod.Namespace, pod.Name, open)
	if err != nil {
		return nil, p.takeBack(ctx, pod, failure(ctx, op, err))
	}
	return finished, nil
}

// takeBack deletes a pod that waits for what it will not get, unless somebody has changed it since. When that fails, the pod is
// deleted later: see gatedCondition.
func (p *pods) takeBack(ctx context.Context, pod *corev1.Pod, cause *provider.Error) *provider.Error {
	if cause.Class == provider.ErrTransient || cause.Class == provider.ErrCanceled {
		return cause
	}
	only := metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	if err := p.client.deletePod(ctx, pod.Namespace, pod.Name, only); err != nil && !notFound(err) && !changed(err) {
		p.log.WarnContext(ctx, "pod not taken back", "id", idOf(pod.Namespace, pod.Name), "err", failure(ctx, cause.Op, err))
	}
	return cause
}

// Get returns the pod. One that waits for its Secret is not there yet, so that the fleet calls Create again, which finishes it.
func (p *pods) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	const op = "get"
	pod, err := p.look(ctx, op, ref)
	if err != nil {
		return provider.Instance{}, err
	}
	if pod == nil {
		return provider.Instance{}, &provider.Error{Op: op, Class: provider.ErrNotFound}
	}
	in := p.settings.instance(pod, time.Now())
	if gated(pod) && in.State == provider.Provisioning {
		return provider.Instance{}, &provider.Error{Op: op, Class: provider.ErrNotFound, Reason: in.Reason, Err: errors.New(in.Message)}
	}
	return in, nil
}

// look returns the pod of a ref, or nil when there is none of ours.
func (p *pods) look(ctx context.Context, op string, ref provider.Ref) (*corev1.Pod, error) {
	namespace, name, err := place(op, ref.ID)
	if err != nil {
		return nil, err
	}
	if err := provider.Interrupted(ctx, op); err != nil {
		return nil, err
	}
	pod, err := p.client.getPod(ctx, namespace, name)
	switch {
	case notFound(err):
		return nil, nil
	case err != nil:
		return nil, p.elsewhere(namespace, failure(ctx, op, err))
	case !p.owns(pod, ref.UID):
		return nil, nil
	}
	return pod, nil
}

// elsewhere says of a pod that cannot be reached any more that its namespace is not the configured one. As long as it can be, its
// ID is enough to look after it.
func (p *pods) elsewhere(namespace string, e *provider.Error) *provider.Error {
	if namespace == p.settings.Namespace || e.Reason != forbidden {
		return e
	}
	return &provider.Error{Op: e.Op, Class: e.Class, Reason: provider.NotConfigured,
		Err: fmt.Errorf("the pod is in namespace %q, and the configuration names %q: %w", namespace, p.settings.Namespace, e.Err)}
}

// Delete looks first: at whose the pod is, which one it is, and whether it goes already. It names the pod by its UID, so that
// whatever happens after the look, it hits that one or none. The Secret goes with its owner.
func (p *pods) Delete(ctx context.Context, ref provider.Ref) error {
	const op = "delete"
	pod, err := p.look(ctx, op, ref)
	if err != nil {
		return err
	}
	if pod == nil || pod.DeletionTimestamp != nil || cmp.Or(ref.Incarnation, string(pod.UID)) != string(pod.UID) {
		return nil
	}
	err = p.client.deletePod(ctx, pod.Namespace, pod.Name, metav1.Preconditions{UID: &pod.UID})
	if err != nil && !notFound(err) && !changed(err) {
		return p.elsewhere(pod.Namespace, failure(ctx, op, err))
	}
	return nil
}

// pageSize is how many pods are read at once.
const pageSize = 500

// List returns all pods of this fleet in the configured namespace. A list that changes its server or takes too long between two
// pages is an error.
func (p *pods) List(ctx context.Context) ([]provider.Instance, error) {
	const op = "list"
	if err := provider.Interrupted(ctx, op); err != nil {
		return nil, err
	}
	var all []provider.Instance
	selector := strings.Join([]string{managedLabel + "=true", fleetLabel + "=" + p.fleet}, ",")
	for token := ""; ; {
		page, err := p.client.podsPage(ctx, p.settings.Namespace, selector, pageSize, token)
		if err != nil {
			return nil, failure(ctx, op, err)
		}
		for i := range page.Items {
			if pod := &page.Items[i]; marksOf(pod).Fleet == p.fleet {
				all = append(all, p.settings.instance(pod, time.Now()))
			}
		}
		if token = page.Continue; token == "" {
			return all, nil
		}
	}
}
