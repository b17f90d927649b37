package cloud_test

import (
	"testing"
	"time"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
)

func TestState(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	lived := cloud.Instance{Created: at(10), Running: at(20)}
	died, deleted, both, failed := lived, lived, lived, lived
	died.Died = at(30)
	deleted.Stopping, deleted.Ended = at(40), at(50)
	both.Died, both.Stopping, both.Ended = at(30), at(40), at(50)
	failed.Failure, failed.Ended = "internal", at(20)
	tests := []struct {
		name     string
		instance cloud.Instance
		want     map[int64]cloud.State
	}{
		{"lives", lived, map[int64]cloud.State{10: cloud.Provisioning, 19: cloud.Provisioning, 20: cloud.Running, 99: cloud.Running}},
		{"died", died, map[int64]cloud.State{29: cloud.Running, 30: cloud.Stopped, 99: cloud.Stopped}},
		{"deleted", deleted, map[int64]cloud.State{39: cloud.Running, 40: cloud.Stopping, 50: cloud.Gone}},
		{"died and was deleted", both, map[int64]cloud.State{39: cloud.Stopped, 40: cloud.Stopping, 50: cloud.Gone}},
		{"failed", failed, map[int64]cloud.State{19: cloud.Provisioning, 20: cloud.Gone}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for second, want := range tt.want {
				if got := tt.instance.State(at(second)); got != want {
					t.Errorf("at %d it is %s, want %s", second, got, want)
				}
			}
		})
	}
}
