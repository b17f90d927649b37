package app

import (
	"net"
)

// checkAccess refuses to let the network do what it likes with the fleet: without a token, the API is for this machine.
func checkAccess(address string, hasToken, insecure bool) error {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return misused("--listen %s: %v", address, err)
	}
	if hasToken || insecure || resolved.IP.IsLoopback() {
		return nil
	}
	return misused("--listen %s lets other machines in, and there is no token: give one by --token-file or %s, or say --insecure-no-token if everybody may lease, read and change",
		address, tokenVariable)
}
