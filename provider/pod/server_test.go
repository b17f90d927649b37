package pod_test

import "testing"

// TestAPIServer has what needs a real API server, whose node is played by the test.
func TestAPIServer(t *testing.T) {
	s := startServer(t)
	t.Run("conformance", func(t *testing.T) { testConformance(t, s) })
}
