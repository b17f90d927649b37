package gc_test

import (
	"context"
	"fmt"
	"time"

	"github.com/proxyfleet/fleet/gc"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/providertest"
)

// A provider has two instances of this fleet, and one of the two proxies is in no record.
func Example() {
	cloud := new(providertest.Memory)
	for _, uid := range []string{"uid-of-berlin", "uid-of-nobody"} {
		cloud.Plant(provider.Request{Name: uid, Marks: provider.Marks{Fleet: "acme", UID: uid}})
	}
	records := func(context.Context) (map[string]gc.Held, error) {
		return map[string]gc.Held{"uid-of-berlin": {Key: "default/berlin", Provider: "cloud", ID: "memory/uid-of-berlin"}}, nil
	}
	s, err := gc.New(gc.Config{
		Fleet:     "acme",
		Providers: map[string]provider.Provider{"cloud": cloud.Open("acme")},
		Live:      records,
		MinAge:    time.Nanosecond, // for this example: what it made a moment ago is old
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := s.Sweep(context.Background()) // go s.Run(ctx) sweeps every ten minutes
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range plan.Providers {
		for _, v := range p.Instances {
			fmt.Println(v.Action, v.ID, v.Reason, v.Key)
		}
	}
	// Output:
	// keep memory/uid-of-berlin Live default/berlin
	// delete memory/uid-of-nobody Orphan
}
