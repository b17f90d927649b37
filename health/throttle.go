package health

import (
	"sync"
	"time"
)

// throttle keeps what may happen at every probe from filling the log.
type throttle struct {
	mu     sync.Mutex
	passed time.Time
}

// pass says whether to warn now: not before warningPause has passed since it last said so.
func (t *throttle) pass() bool {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.passed) < warningPause {
		return false
	}
	t.passed = now
	return true
}
