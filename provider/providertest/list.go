package providertest

import (
	"fmt"

	"github.com/proxyfleet/fleet/provider"
)

func list(b *bench) {
	if all := b.mustList(); len(all) != 0 {
		b.Errorf("List of a fleet without instances returned %v", all)
	}
	const count = 5
	made := map[string]provider.Instance{}
	for range count {
		in := b.mustCreate(b.request())
		made[in.ID] = in
	}
	gone := b.mustCreate(b.request())
	b.mustDelete(refOf(gone))
	b.eventually("List has the instances that are there and no others", func() error {
		all := b.mustList()
		for id, want := range made {
			got, ok := all[id]
			if !ok {
				return fmt.Errorf("%s is missing", id)
			}
			if got.Incarnation != want.Incarnation || got.Marks != want.Marks || got.State != want.State {
				return fmt.Errorf("it has %+v where Get has %+v", got, want)
			}
		}
		if len(all) != count {
			return fmt.Errorf("it has %d instances, want %d", len(all), count)
		}
		return nil
	})
}

func listFails(b *bench) {
	for range 3 {
		b.mustCreate(b.request())
	}
	b.inject(ListFails)
	if all, err := b.list(); b.retried(err) && len(all) != 3 {
		b.Errorf("List returned %d instances without an error, want all 3 or a transient error", len(all))
	}
	b.eventually("List has all instances again", func() error {
		all, err := b.list()
		if err == nil && len(all) != 3 {
			err = fmt.Errorf("it has %d instances, want 3", len(all))
		}
		return err
	})
}
