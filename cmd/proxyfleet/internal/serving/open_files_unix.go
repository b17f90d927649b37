//go:build unix

package serving

import "syscall"

// maxOpenFiles is how many files the process may have open, as far as that is bounded and known.
func maxOpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 2 * maxConnections
	}
	return int(min(limit.Cur, 2*maxConnections)) // "unlimited" is more than an int holds
}
