package libvirt

import (
	"encoding/binary"
	"fmt"
	"net"
)

// The sizes of a message of libvirt's protocol, its length included; see VIR_NET_MESSAGE_MAX in libvirt's sources.
const (
	leastFrame = 28
	mostFrame  = 32<<20 + leastFrame
)

// framedConn ends a connection on which a message has an impossible length. Go-libvirt makes room for whatever length it is
// told, and would end the process over one that is too short or too long.
type framedConn struct {
	net.Conn
	length [4]byte
	seen   int    // bytes of the length of the message that begins
	left   uint32 // bytes of the message that are still to come
}

func (c *framedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for rest := b[:n]; len(rest) > 0; {
		if c.left > 0 {
			skip := min(int(c.left), len(rest))
			c.left -= uint32(skip)
			rest = rest[skip:]
			continue
		}
		got := copy(c.length[c.seen:], rest)
		c.seen += got
		rest = rest[got:]
		if c.seen < len(c.length) {
			break
		}
		c.seen = 0
		size := binary.BigEndian.Uint32(c.length[:])
		if size < leastFrame || size > mostFrame {
			_ = c.Close()
			return 0, fmt.Errorf("a message of %d bytes", size)
		}
		c.left = size - uint32(len(c.length))
	}
	return n, err
}
