package app

import (
	"net"

	"github.com/proxyfleet/fleet/secret"
)

// access says who may use the API.
type access struct {
	token     secret.Text // zero: whoever reaches it
	everybody bool        // whoever reaches it may also change things
}

// readAccess returns who may use the API, as flags and environment say it.
func readAccess(o runOptions) (a access, err error) {
	if a.token, err = readToken(o.tokenFile); err != nil {
		return a, err
	}
	a.everybody, err = checkAccess(o.listen, !a.token.IsZero(), o.insecureNoToken)
	return a, err
}

// checkAccess refuses to let the network do what it likes with the fleet: without a token, the API is for this machine,
// unless everybody is meant to be served.
func checkAccess(address string, hasToken, insecure bool) (everybody bool, err error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return false, misused("--listen %s: %v", address, err)
	}
	if hasToken || resolved.IP.IsLoopback() {
		return false, nil
	}
	if insecure {
		return true, nil
	}
	return false, misused("--listen %s lets other machines in, and there is no token: give one by --token-file or %s, or say --insecure-no-token if everybody may lease, read and change",
		address, tokenVariable)
}
