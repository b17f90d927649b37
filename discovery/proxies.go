package discovery

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
	"github.com/proxyfleet/fleet/proxy"
)

// annotateTimeout bounds the writing of an annotation, which is tried again while others write the same record.
const annotateTimeout = 10 * time.Second

func (a *api) listProxies(w http.ResponseWriter, r *http.Request) error {
	f, err := readFilter(r)
	if err != nil {
		return err
	}
	list, err := inTurn(a.lists, w, r, func() ([]byte, error) { return a.list(r.Context(), f) })
	if err != nil {
		return err
	}
	sendJSON(w, http.StatusOK, list)
	return nil
}

// list returns an encoded page of proxies.
func (a *api) list(ctx context.Context, f filter) ([]byte, error) {
	all, err := a.Proxies.List(ctx)
	if err != nil {
		return nil, err
	}
	matching := slices.DeleteFunc(all, func(p *proxy.Proxy) bool { return !f.matches(p) })
	page, next := f.page(matching)
	list := wire.ProxyList{Proxies: make([]wire.Proxy, 0, len(page)), Count: len(matching), Continue: next}
	active := a.active()
	for _, p := range page {
		list.Proxies = append(list.Proxies, show(p, active))
	}
	return encode(list), nil
}

func (a *api) getProxy(w http.ResponseWriter, r *http.Request) error {
	p, err := a.Proxies.Get(r.Context(), keyOf(r))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, show(p, a.active()))
	return nil
}

// skipCleanup lets go of a proxy without its instance. It may be said before the proxy is deleted, as the annotation may.
func (a *api) skipCleanup(w http.ResponseWriter, r *http.Request) error {
	return a.annotate(w, r, proxy.SkipCleanupAnnotation, "true")
}

// retry asks for an attempt at once. The time is a value that was not there before.
func (a *api) retry(w http.ResponseWriter, r *http.Request) error {
	return a.annotate(w, r, proxy.RetryAnnotation, time.Now().UTC().Format(time.RFC3339Nano))
}

func (a *api) annotate(w http.ResponseWriter, r *http.Request, annotation, value string) error {
	ctx, cancel := context.WithTimeout(r.Context(), annotateTimeout)
	defer cancel()
	p, err := proxy.Update(ctx, a.Proxies, keyOf(r), a.Proxies.UpdateMeta, func(p *proxy.Proxy) error {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[annotation] = value
		return nil
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, show(p, a.active()))
	return nil
}

func keyOf(r *http.Request) proxy.Key {
	return proxy.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// active returns how many leases are open of each proxy that has any, or nil where another replica knows.
func (a *api) active() map[string]int {
	if a.ActiveLeases == nil {
		return nil
	}
	if active := a.ActiveLeases(); active != nil {
		return active
	}
	return map[string]int{}
}

// show returns what the API shows of a proxy: nothing that is a secret, and of the spec only what a crawler or an operator
// chooses by.
func show(p *proxy.Proxy, active map[string]int) wire.Proxy {
	spec, status := p.Spec.Canonical(), p.Status
	if spec.Attributes == nil {
		spec.Attributes = map[string]string{}
	}
	provider, declared := cmp.Or(status.Instance.Provider, spec.Provider), spec.Provider
	if declared == provider {
		declared = ""
	}
	var open *int
	if active != nil {
		open = new(active[p.Key.String()])
	}
	return wire.Proxy{
		Namespace:           p.Namespace,
		Name:                p.Name,
		UID:                 p.UID,
		Generation:          p.Generation,
		ObservedGeneration:  status.ObservedGeneration,
		Mode:                string(spec.Mode),
		Phase:               string(cmp.Or(status.Phase, proxy.Pending)),
		Deleting:            p.Deleting,
		Conditions:          showEach(status.Conditions, showCondition),
		Provider:            provider,
		DeclaredProvider:    declared,
		InstanceID:          status.Instance.ID,
		Host:                status.Instance.Host,
		Port:                status.Instance.Port,
		LatencyMillis:       status.LatencyMillis,
		LastHealthCheckTime: status.LastHealthCheckTime.Std(),
		Attributes:          spec.Attributes,
		MaxLeases:           spec.MaxLeases,
		ActiveLeases:        open,
	}
}

func showCondition(c proxy.Condition) wire.Condition {
	return wire.Condition{
		Type:               string(c.Type),
		Status:             string(c.Status),
		Reason:             c.Reason,
		Message:            c.Message,
		LastTransitionTime: c.LastTransitionTime.Std(),
	}
}
