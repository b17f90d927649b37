package serving

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
)

// crowd is a listener to which somebody comes at every call, unless it is out of order.
type crowd struct{ err error }

func (c *crowd) Accept() (net.Conn, error) {
	if c.err != nil {
		return nil, c.err
	}
	_, server := net.Pipe()
	return server, nil
}

func (*crowd) Close() error   { return nil }
func (*crowd) Addr() net.Addr { return nil }

type arrival struct {
	conn net.Conn
	err  error
}

// accept has the listener accept, and says whether that ended.
func accept(l net.Listener) (ended <-chan arrival, now bool) {
	c := make(chan arrival, 1)
	go func() {
		conn, err := l.Accept()
		c <- arrival{conn, err}
	}()
	synctest.Wait()
	return c, len(c) == 1
}

func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coming := &crowd{}
		l := bound(coming, 2)
		coming.err = errors.New("out of order")
		for range 3 { // failures take no place
			if c, now := accept(l); !now || !errors.Is((<-c).err, coming.err) {
				t.Fatal("a failure to accept is not passed on")
			}
		}
		coming.err = nil
		var open []net.Conn
		for range 2 {
			c, now := accept(l)
			if !now {
				t.Fatal("there is a place, and it is not given")
			}
			open = append(open, (<-c).conn)
		}
		third, now := accept(l)
		if now {
			t.Fatal("three connections are open")
		}
		for range 2 { // closing twice frees one place
			if err := open[0].Close(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(third) != 1 {
			t.Fatal("a place came free, and it is not given")
		}
		fourth, now := accept(l)
		if now {
			t.Fatal("three connections are open after one was closed twice")
		}
		for range 2 {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if got := <-fourth; !errors.Is(got.err, net.ErrClosed) {
			t.Errorf("the closed listener accepts: %+v", got)
		}
	})
}

// Peers of the API and of the metrics together leave files for the fleet itself.
func TestConnectionsLeaveFiles(t *testing.T) {
	for _, c := range []struct{ files, api, metrics int }{
		{1, 1, 1},
		{64, 32, 8},
		{256, 128, 32},
		{1024, 512, 64},
		{1 << 20, 4096, 64},
	} {
		api, metrics := Config{}.connections(c.files), Config{MaxConnections: 64}.connections(c.files)
		if api != c.api || metrics != c.metrics {
			t.Errorf("of %d files %d and %d, want %d and %d", c.files, api, metrics, c.api, c.metrics)
		}
	}
}

func TestMaxOpenFiles(t *testing.T) {
	if got := maxOpenFiles(); got < 1 || got > 2*maxConnections {
		t.Errorf("%d", got)
	}
}
