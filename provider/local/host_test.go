package local

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// The addresses of a machine may change while its proxies run: a new one is known within hostAge. When they cannot be told,
// no address is taken for a stranger's.
func TestHostLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, added := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
		found, broken := []netip.Addr{old}, error(nil)
		h := &host{interfaces: func() ([]netip.Addr, error) { return found, broken }}
		expect := func(a netip.Addr, want bool) {
			t.Helper()
			if got, err := h.has(a); err != nil || got != want {
				t.Errorf("has(%v) = %v, %v; want %v", a, got, err, want)
			}
		}
		expect(old, true)
		expect(added, false)

		found = []netip.Addr{added}
		time.Sleep(hostAge)
		expect(added, true)
		expect(old, false)

		broken = errors.New("planted")
		time.Sleep(hostAge)
		if got, err := h.has(old); !errors.Is(err, broken) {
			t.Errorf("has(%v) = %v, %v; want the error", old, got, err)
		}
		broken = nil
		expect(added, true)
	})
}

// Without being told, the provider knows what the interfaces have.
func TestHostOfThisMachine(t *testing.T) {
	h := newHost(pool{})
	for address, want := range map[string]bool{"127.0.0.1": true, "93.184.216.34": false} {
		if got, err := h.has(netip.MustParseAddr(address)); err != nil || got != want {
			t.Errorf("has(%s) = %v, %v; want %v", address, got, err, want)
		}
	}
}
