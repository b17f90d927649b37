package walk

import (
	"context"
	"errors"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/proxy"
)

// letter is the machine that everybody writes first: the hash stands in an annotation, the provider is looked up by the
// spec, the ID is written after Create, NotFound is believed, and no incarnation is named. It is here to be found guilty.
type letter struct {
	store     proxy.Store
	providers map[string]provider.Provider
}

const hashNote = "hash"

func byLetter(_ *history, c *cache, providers map[string]provider.Provider) pass {
	l := &letter{c, providers}
	return l.reconcile
}

func (l *letter) reconcile(ctx context.Context, k proxy.Key) (_ time.Duration, err error) {
	p, err := l.store.Get(ctx, k)
	if errors.Is(err, proxy.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	base := p.Status.Clone()
	defer func() {
		p.Status.ObservedGeneration = p.Generation
		if p.Version != "" && !p.Status.Equal(base) {
			_, werr := l.store.UpdateStatus(ctx, p)
			err = errors.Join(err, werr)
		}
	}()
	if p.Deleting {
		return l.remove(ctx, p)
	}
	return l.managed(ctx, p)
}

// meta writes metadata; an empty version says that the status is not to be written any more.
func (l *letter) meta(ctx context.Context, p *proxy.Proxy) error {
	q, err := l.store.UpdateMeta(ctx, p)
	if err != nil {
		p.Version = ""
		return err
	}
	p.Version = q.Version
	return nil
}

func (l *letter) finalizer(ctx context.Context, p *proxy.Proxy, on bool) (time.Duration, error) {
	p.Finalizer = on
	err := l.meta(ctx, p)
	p.Version = ""
	return time.Millisecond, err
}

func (l *letter) note(ctx context.Context, p *proxy.Proxy, hash string) error {
	p.Annotations = map[string]string{hashNote: hash}
	return l.meta(ctx, p)
}

func ref(p *proxy.Proxy) provider.Ref { return provider.Ref{ID: p.Status.Instance.ID, UID: p.UID} }

func (l *letter) remove(ctx context.Context, p *proxy.Proxy) (time.Duration, error) {
	if !p.Finalizer {
		return 0, nil
	}
	if p.Status.Instance.ID == "" {
		return l.finalizer(ctx, p, false)
	}
	prov := l.providers[p.Spec.Provider]
	_, err := prov.Get(ctx, ref(p))
	if errors.Is(err, provider.ErrNotFound) {
		return l.finalizer(ctx, p, false)
	}
	if err != nil {
		return time.Second, err
	}
	return time.Second, prov.Delete(ctx, ref(p))
}

func (l *letter) managed(ctx context.Context, p *proxy.Proxy) (time.Duration, error) {
	if !p.Finalizer {
		return l.finalizer(ctx, p, true)
	}
	prov := l.providers[p.Spec.Provider]
	in, err := l.store.Inputs(ctx, p)
	if err != nil {
		return 0, err
	}
	hash := asksFor(p.Spec, in)
	switch noted := p.Annotations[hashNote]; {
	case p.Status.Instance.ID == "":
		return l.create(ctx, p, prov, hash)
	case noted == "":
		return time.Millisecond, l.note(ctx, p, hash)
	case noted != hash:
		return l.replace(ctx, p, prov, hash)
	}
	got, err := prov.Get(ctx, ref(p))
	switch {
	case errors.Is(err, provider.ErrNotFound):
		p.Status.Instance = proxy.Instance{}
		return time.Millisecond, nil
	case err != nil:
		return 0, err
	case got.State == provider.Running:
		p.Status.Phase, p.Status.Instance.Host = proxy.Ready, got.Host
		return 10 * time.Second, nil
	case got.State == provider.Stopped:
		return time.Second, prov.Delete(ctx, ref(p))
	}
	return time.Second, nil
}

func (l *letter) create(ctx context.Context, p *proxy.Proxy, prov provider.Provider, hash string) (time.Duration, error) {
	got, err := prov.Create(ctx, provider.Request{Name: provider.Name(fleetID, p.UID), Port: int(p.Spec.Port),
		Marks:     provider.Marks{Fleet: fleetID, UID: p.UID, Hash: hash},
		Placement: provider.Placement{Zone: p.Spec.Placement.Zone, MachineType: p.Spec.Placement.MachineType}})
	if err != nil {
		return 0, err
	}
	if err := l.note(ctx, p, hash); err != nil {
		return 0, err
	}
	p.Status.Instance.ID, p.Status.Phase = got.ID, proxy.Provisioning
	return time.Second, nil
}

func (l *letter) replace(ctx context.Context, p *proxy.Proxy, prov provider.Provider, hash string) (time.Duration, error) {
	_, err := prov.Get(ctx, ref(p))
	if errors.Is(err, provider.ErrNotFound) {
		p.Status.Instance = proxy.Instance{}
		return time.Millisecond, l.note(ctx, p, hash)
	}
	if err != nil {
		return 0, err
	}
	p.Status.Phase = proxy.Replacing
	return time.Second, prov.Delete(ctx, ref(p))
}
