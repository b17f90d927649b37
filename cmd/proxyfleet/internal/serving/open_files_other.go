//go:build !unix

package serving

// maxOpenFiles is how many files the process may have open: here, as many as the server could want.
func maxOpenFiles() int { return 2 * maxConnections }
