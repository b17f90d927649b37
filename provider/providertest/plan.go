package providertest

import (
	"errors"
	"strings"

	"github.com/proxyfleet/fleet/provider"
)

func plan(b *bench) {
	r, other := b.request(), b.request()
	first := b.planned(r)
	if !strings.Contains(first.ID, r.Name) {
		b.Errorf("the ID %q does not contain the name %q", first.ID, r.Name)
	}
	if b.planned(other).ID == first.ID {
		b.Errorf("two names have the ID %q", first.ID)
	}
	if in := b.mustCreate(r); in.ID != first.ID {
		b.Errorf("Create returned the ID %q where Plan had said %q", in.ID, first.ID)
	}
	if again := b.planned(b.again(r)); again.ID != first.ID {
		b.Errorf("Plan said %q, and then %q", first.ID, again.ID)
	}
}

func planRefuses(b *bench) {
	if len(b.Refused) == 0 {
		b.Skipf("the harness names no field that this provider refuses")
	}
	for field, edit := range b.Refused {
		r := b.request()
		ref := b.planned(r)
		edit(&r)
		_, planErr := b.plan(r)
		_, createErr := b.create(r)
		for _, err := range []error{planErr, createErr} {
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Class != provider.ErrPermanent || (e.Reason != provider.MissingField && e.Reason != provider.UnsupportedField) {
				b.Errorf("the error for the field %s is %v, want a permanent %s or %s", field, err, provider.MissingField, provider.UnsupportedField)
			} else if !strings.Contains(e.Error(), field) {
				b.Errorf("the error for the field %s does not name it: %v", field, err)
			}
		}
		b.awaitGone(ref)
	}
}

func delays(b *bench) {
	delayer, ok := provider.As[provider.Delayer](b.provider)
	if !ok {
		b.Skipf("the provider states no delays")
	}
	d := delayer.Delays()
	if d.Call <= 0 {
		b.Errorf("Call is %v: no Create could be sent", d.Call)
	}
	if d.Settle != 0 && d.Settle < d.Call {
		b.Errorf("Settle is %v, which does not cover Call, %v", d.Settle, d.Call)
	}
}
