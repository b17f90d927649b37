package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// sealed is a Secret as it is kept: what it holds does not print.
type sealed struct {
	metav1.ObjectMeta
	proxy.Secret
}

// seal makes a sealed Secret of one that came from the API server.
func seal(item any) (any, error) {
	s, ok := item.(*corev1.Secret)
	if !ok {
		return item, nil // it is sealed already, or says that one is gone
	}
	c := &sealed{Secret: proxy.Secret{Labels: s.Labels, Data: make(map[string]secret.Text, len(s.Data))}}
	c.Name, c.Namespace, c.UID, c.ResourceVersion = s.Name, s.Namespace, s.UID, s.ResourceVersion
	for k, v := range s.Data {
		c.Data[k] = secret.New(string(v))
	}
	return c, nil
}

// secrets are the labelled Secrets of the cluster. A selector knows no "or", so each label has a cache of its own.
type secrets []*source

// Get returns the newest that any of the caches has.
func (s secrets) Get(_ context.Context, namespace, name string) (proxy.Secret, error) {
	var newest *sealed
	for _, source := range s {
		item, there, err := source.informer.GetIndexer().GetByKey(namespace + "/" + name)
		if err != nil || !there {
			continue
		}
		if c := item.(*sealed); newest == nil || reached(c.ResourceVersion, newest.ResourceVersion) {
			newest = c
		}
	}
	if newest == nil {
		return proxy.Secret{}, fmt.Errorf("%s/%s: %w", namespace, name, proxy.ErrSecretNotFound)
	}
	return newest.Secret, nil
}

// Watch only waits: the store follows the caches for all of its watches together.
func (s secrets) Watch(ctx context.Context, _ func(namespace, name string)) error {
	<-ctx.Done()
	return nil
}

// changed makes a handler that calls fn with the namespace/name of each object that changed, and the object, nil for one that is gone.
func changed(fn func(key string, now any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(item any) { fn(keyOf(item), item) },
		UpdateFunc: func(was, now any) {
			if versionOf(was) != versionOf(now) {
				fn(keyOf(now), now)
			}
		},
		DeleteFunc: func(item any) { fn(keyOf(item), nil) },
	}
}

func keyOf(item any) string {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(item)
	if err != nil {
		return "" // what is in a cache has a key
	}
	return key
}

func versionOf(item any) string {
	if o, ok := item.(metav1.Object); ok {
		return o.GetResourceVersion()
	}
	return ""
}
