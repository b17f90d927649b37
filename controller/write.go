package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/proxyfleet/fleet/proxy"
)

// UpdateMeta writes finalizer and annotations. Finalizers of others stay, and so do annotations that p has as they were read.
func (s *Store) UpdateMeta(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
	_, now, err := s.update(ctx, p, "", func(o *object, p *proxy.Proxy) (patch, error) { return metaPatch(o, p, s.cfg.Fleet) })
	if err != nil {
		return nil, err
	}
	return now.record(s.cfg.Fleet), nil
}

// UpdateStatus writes the status, and an Event where it says something new.
func (s *Store) UpdateStatus(ctx context.Context, p *proxy.Proxy) (*proxy.Proxy, error) {
	was, now, err := s.update(ctx, p, "status", statusPatch)
	if err != nil {
		return nil, err
	}
	s.events.tell(was, now)
	return now.record(s.cfg.Fleet), nil
}

// update patches the object that p was read from, and returns it as it was and as it is stored then. The patch is sent also
// when it changes nothing: so the versions are compared where the objects are. After a conflict the object is read, so that a
// cache that hears nothing makes nobody try again for ever.
func (s *Store) update(ctx context.Context, p *proxy.Proxy, subresource string, change func(*object, *proxy.Proxy) (patch, error)) (was, now *object, err error) {
	if was, err = s.base(ctx, p); err == nil {
		var body patch
		if body, err = change(was, p); err == nil {
			if now, err = s.patch(ctx, p.Key, subresource, body); errors.Is(err, proxy.ErrConflict) {
				s.refresh(ctx, p.Key)
			}
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%v: %w", p.Key, err)
	}
	return was, now, nil
}

// base returns the object in the version that p was read in.
func (s *Store) base(ctx context.Context, p *proxy.Proxy) (*object, error) {
	o := s.recent.get(p.Key)
	if o != nil && string(o.UID) == p.UID && o.ResourceVersion == p.Version {
		return o, nil
	}
	if o != nil && reached(o.ResourceVersion, p.Version) && o.ResourceVersion != p.Version {
		return nil, proxy.ErrConflict // a newer one is known already
	}
	o, err := s.read(ctx, p.Key)
	if err != nil {
		return nil, err
	}
	if string(o.UID) != p.UID || o.ResourceVersion != p.Version {
		return nil, proxy.ErrConflict
	}
	return o, nil
}

// refresh has later reads not go behind what is stored now. That it fails is no matter: the cache may still catch up.
func (s *Store) refresh(ctx context.Context, k proxy.Key) {
	if o, err := s.read(ctx, k); err == nil {
		s.recent.note(o)
	}
}

// read asks the API server for an object.
func (s *Store) read(ctx context.Context, k proxy.Key) (*object, error) {
	return s.send(ctx, k, s.proxies.Get().Namespace(k.Namespace).Resource("proxies").Name(k.Name))
}

// patch sends a patch and takes over what it made.
func (s *Store) patch(ctx context.Context, k proxy.Key, subresource string, body patch) (*object, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request := s.proxies.Patch(types.MergePatchType).Namespace(k.Namespace).Resource("proxies").Name(k.Name).Body(text)
	if subresource != "" {
		request.SubResource(subresource)
	}
	o, err := s.send(ctx, k, request)
	if err != nil {
		return nil, err
	}
	if o.removed() {
		s.recent.noteGone(o, o.ResourceVersion)
	} else {
		s.recent.note(o)
	}
	return o, nil
}

// errStranger says that a request was answered with something else than it asked for: that proves nothing.
var errStranger = errors.New("no answer of the Kubernetes API")

// send sends a request whose answer is the object of that name.
func (s *Store) send(ctx context.Context, k proxy.Key, r *rest.Request) (*object, error) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	w := &wire{}
	if err := r.Do(limited).Into(w); err != nil {
		return nil, translated(err)
	}
	o := understood(w)
	if o.key() != k || o.UID == "" || o.ResourceVersion == "" {
		return nil, errStranger
	}
	return o, nil
}

// translated is an error of the API server as the contract has it. That it knows no such kind of objects is none of those.
func translated(err error) error {
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", proxy.ErrConflict, err)
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return fmt.Errorf("%w: %w", proxy.ErrNotFound, err)
	}
	return err
}
