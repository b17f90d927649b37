package proxy_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/proxyfleet/fleet/proxy"
)

func ExampleMemory() {
	ctx := context.Background()
	store := proxy.NewMemory(proxy.MemoryConfig{Fleet: "lab"})
	key := proxy.Key{Namespace: "crawl", Name: "eu-1"}

	_, err := store.Put(ctx, key, proxy.Declaration{Spec: proxy.Spec{Provider: "lab", Port: 70000}}, "example")
	fmt.Println(err)

	_, err = store.Put(ctx, key, proxy.Declaration{Spec: proxy.Spec{Provider: "lab"}}, "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := store.Get(ctx, key)
	fmt.Println(p.Key, p.Generation, p.Spec.Mode, p.Spec.Port, err)

	// Two writers that read the same version: the second one reads again.
	first, second := p.Clone(), p.Clone()
	first.Status.Phase = proxy.Provisioning
	_, err = store.UpdateStatus(ctx, first)
	fmt.Println(err)
	second.Status.Phase = proxy.Failed
	_, err = store.UpdateStatus(ctx, second)
	fmt.Println(errors.Is(err, proxy.ErrConflict))
	// Output:
	// crawl/eu-1: spec.port: must be 1 to 65535, or left out for 3128, not 70000
	// crawl/eu-1 1 Managed 3128 <nil>
	// <nil>
	// true
}

func ExampleMemory_Watch() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := proxy.NewMemory(proxy.MemoryConfig{Fleet: "lab"})
	for _, name := range []string{"eu-1", "eu-2"} {
		_, err := store.Put(ctx, proxy.Key{Namespace: "crawl", Name: name}, proxy.Declaration{Spec: proxy.Spec{Provider: "lab"}}, "example")
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	err := store.Watch(ctx, func(k proxy.Key) {
		p, err := store.Get(ctx, k)
		switch {
		case errors.Is(err, proxy.ErrNotFound):
			fmt.Println(k, "is gone")
			stop()
		case err == nil:
			fmt.Println(k, "is wanted from", p.Spec.Provider)
			if k.Name == "eu-2" {
				err = store.Delete(ctx, k) // Watch comes back to it
			}
		}
		if err != nil && !errors.Is(err, proxy.ErrNotFound) {
			fmt.Println(err)
		}
	})
	fmt.Println(err)
	// Output:
	// crawl/eu-1 is wanted from lab
	// crawl/eu-2 is wanted from lab
	// crawl/eu-2 is gone
	// <nil>
}

func ExampleUpdate() {
	ctx := context.Background()
	store := proxy.NewMemory(proxy.MemoryConfig{Fleet: "lab"})
	key := proxy.Key{Namespace: "crawl", Name: "eu-1"}
	if _, err := store.Put(ctx, key, proxy.Declaration{Spec: proxy.Spec{Provider: "lab"}}, "example"); err != nil {
		fmt.Println(err)
		return
	}
	p, err := proxy.Update(ctx, store, key, store.UpdateMeta, func(p *proxy.Proxy) error {
		p.Annotations = map[string]string{proxy.RetryAnnotation: "now"}
		return nil
	})
	fmt.Println(p.Annotations, err)
	// Output: map[crawl.example.com/retry:now] <nil>
}
