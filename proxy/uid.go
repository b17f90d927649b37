package proxy

import (
	"crypto/sha1" //nolint:gosec // RFC 9562 defines version 5 by SHA-1.
	"encoding/hex"
)

// uidSpace is the namespace of the UUIDs that this package makes.
var uidSpace = [16]byte{0x6f, 0x1d, 0x3c, 0x52, 0x8b, 0x0a, 0x4e, 0x6d, 0x9c, 0x21, 0x57, 0x0e, 0x44, 0xb3, 0xd8, 0x95}

// uid returns the UUID, version 5 of RFC 9562, of a name within a fleet. It depends on nothing else, so that a fleet whose
// state was lost knows its instances again.
func uid(fleet string, k Key) string {
	h := sha1.New() //nolint:gosec // see above
	h.Write(uidSpace[:])
	h.Write([]byte(fleet + "\x00" + k.Namespace + "\x00" + k.Name))
	u := h.Sum(nil)[:16]
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	s := hex.EncodeToString(u)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
