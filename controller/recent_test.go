package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestAnswerIsOvertaken(t *testing.T) {
	known := func(uid types.UID, version string) *object {
		o := &object{}
		o.UID, o.ResourceVersion = uid, version
		return o
	}
	there := answer{version: "100", uid: "1", object: known("1", "100")}
	gone := answer{version: "100", uid: "1"}
	for _, c := range []struct {
		name   string
		answer answer
		cached *object
		seen   string
		want   bool
	}{
		{"the cache has an older version", there, known("1", "99"), "99", false},
		{"it has that version", there, known("1", "100"), "100", true},
		{"it has a newer one", there, known("1", "101"), "101", true},
		{"it has the life before", there, known("0", "98"), "98", false},
		{"it has nothing yet", there, nil, "99", false},
		{"it has seen nothing at all", there, nil, "", false},
		{"it has seen what came later, and the object is not there", there, nil, "1000", true},
		{"it still has what is gone", gone, known("1", "99"), "99", false},
		{"it still has what is gone, whatever versions say", gone, known("1", "100"), "100", false},
		{"it has the next life of what is gone", gone, known("2", "101"), "101", true},
		{"it has what came before what is gone", gone, known("0", "98"), "98", false},
		{"it has seen that it is gone", gone, nil, "100", true},
		{"it has not seen it come", gone, nil, "90", false},
		{"versions cannot be compared", there, known("1", "x"), "x", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.answer.overtaken(c.cached, c.seen); got != c.want {
				t.Errorf("overtaken: %v, want %v", got, c.want)
			}
		})
	}
}
