package provider

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Name is what the instance of a proxy is called at every backend: proxy- and 16 characters of [a-z2-7], from the identity of
// the fleet and the UID of the proxy. Two fleets never share a name, and a fleet that lost its state finds its instances.
func Name(fleet, uid string) string {
	sum := sha256.Sum256([]byte(fleet + "\x00" + uid))
	return "proxy-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:16])
}
