package providertest

import (
	"fmt"
	"sync"

	"github.com/proxyfleet/fleet/provider"
)

func createAtOnce(b *bench) {
	const callers = 8
	r := b.request()
	var made [callers]provider.Instance
	var errs [callers]error
	var group sync.WaitGroup
	for i := range callers {
		request := b.again(r)
		group.Go(func() { made[i], errs[i] = b.create(request) })
	}
	group.Wait()
	in := b.mustCreate(b.again(r))
	for i := range callers {
		if err := errs[i]; err != nil && provider.ClassOf(err) != provider.ErrTransient {
			b.Errorf("one of several creates at once failed: %v", err)
		}
		if got := made[i].Incarnation; got != "" && got != in.Incarnation {
			b.Errorf("creates at once returned the incarnations %q and %q", got, in.Incarnation)
		}
	}
	b.onlyOne(in)
}

func manyAtOnce(b *bench) {
	const count = 12
	var requests [count]provider.Request
	for i := range requests {
		requests[i] = b.request()
		b.planned(requests[i])
	}
	errs := make(chan error, 4*count)
	var group sync.WaitGroup
	for _, r := range requests {
		group.Go(func() {
			in, err := b.create(r)
			errs <- err
			_, err = b.list()
			errs <- err
			if in.Incarnation == "" {
				return
			}
			_, err = b.get(anyOf(in))
			if provider.ClassOf(err) != provider.ErrNotFound {
				errs <- err
			}
			errs <- b.delete(refOf(in))
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			b.Errorf("one of many calls at once: %v", err)
		}
	}
	for _, r := range requests {
		b.mustDelete(b.planned(r))
	}
}

func lag(b *bench) {
	r := b.request()
	b.inject(Lags)
	first, err := b.create(r)
	if err != nil {
		b.Fatalf("Create: %v", err)
	}
	met, err := b.create(b.again(r))
	switch {
	case err != nil && provider.ClassOf(err) != provider.ErrTransient:
		b.Errorf("Create of what is made but cannot be seen yet returned %v, want a transient error or the instance", err)
	case err == nil && met.Incarnation != first.Incarnation && met.Incarnation != "" && first.Incarnation != "":
		b.Errorf("two creates returned the incarnations %q and %q", first.Incarnation, met.Incarnation)
	}
	var in provider.Instance
	b.eventually("the instance is Running", func() error {
		in, err = b.get(anyOf(first))
		if err == nil && in.State != provider.Running {
			err = fmt.Errorf("it is %s", in.State)
		}
		return err
	})
	b.listsOnly(in)
}
