package cloud_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
)

// inject tells the cloud of a fault, as somebody with curl would.
func (c caller) inject(fault string) {
	c.Helper()
	c.want(204, http.MethodPost, "/admin/faults", fault)
}

func TestFaultsAnswerInsteadOfDoing(t *testing.T) {
	c, call := start(t, cloud.Config{})
	call.inject(`{"op": "create", "status": 429, "retryAfterSeconds": 7, "times": 2}`)
	call.inject(`{"op": "create", "status": 403}`)
	call.inject(`{"op": "list", "status": 503, "skip": 1}`)
	for range 2 {
		if a := call.want(429, http.MethodPost, zoneA, one); a.Code != "quota_exceeded" || a.retryAfter != "7" {
			t.Errorf("the answer is %+v, want quota_exceeded and 7 seconds", a)
		}
	}
	call.want(200, http.MethodGet, zoneA, "")
	call.want(503, http.MethodGet, zoneA, "")
	call.want(200, http.MethodGet, zoneA, "")
	call.want(403, http.MethodPost, zoneA, one)
	if h := c.History(); len(h) != 0 {
		t.Errorf("there is %+v, want nothing", h)
	}
	call.want(200, http.MethodPost, zoneA, one)
}

func TestTheAnswerIsLostAfterTheEffect(t *testing.T) {
	_, c := start(t, cloud.Config{})
	for _, tt := range []struct {
		op, method, path, body string
		then                   func(answer) bool
	}{
		{"create", http.MethodPost, zoneA, one, in(cloud.Running)},
		{"delete", http.MethodDelete, oneA, "", gone},
	} {
		c.inject(`{"op": "` + tt.op + `", "loseAnswer": true}`)
		if a, err := c.try(t.Context(), tt.method, tt.path, "", tt.body); err == nil {
			t.Errorf("the %s is answered with %+v, want a lost connection", tt.op, a)
		}
		c.await(oneA, tt.then)
	}
}

// outcome is what a call came to.
type outcome struct {
	answer
	err error
}

// begin sends a create, and returns when it was sent. The cloud gets it whatever becomes of the caller.
func (c caller) begin() (cancel context.CancelFunc, came <-chan outcome) {
	c.Helper()
	sent, done := make(chan struct{}, 2), make(chan outcome, 1) // A transport may send a second time, on a fresh connection.
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(c.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { sent <- struct{}{} },
	}))
	go func() {
		a, err := c.try(ctx, http.MethodPost, zoneA, "", one)
		done <- outcome{a, err}
	}()
	select {
	case <-sent:
	case o := <-done:
		c.Fatalf("the create came to %+v before it was sent", o)
	}
	return cancel, done
}

func TestALateEffectComesWithoutItsCaller(t *testing.T) {
	c, call := start(t, cloud.Config{})
	call.inject(`{"op": "create", "effectDelayMillis": 10}`)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	c.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, http.MethodPost, zoneA, strings.NewReader(one)))
	call.await(oneA, in(cloud.Running))
}

func TestALateEffectDoesNotComeToAClosedCloud(t *testing.T) {
	c, call := start(t, cloud.Config{})
	call.inject(`{"op": "create", "effectDelayMillis": 3600000}`)
	cancel, came := call.begin()
	defer cancel()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if o := <-came; o.err == nil && o.status != http.StatusServiceUnavailable {
		t.Errorf("the create came to %+v, want no answer or 503", o)
	}
	if h := c.History(); len(h) != 0 {
		t.Errorf("the history is %+v, want it empty", h)
	}
}

func TestALateAnswer(t *testing.T) {
	_, c := start(t, cloud.Config{})
	c.inject(`{"op": "create", "answerDelayMillis": 3600000}`)
	cancel, came := c.begin()
	c.await(oneA, in(cloud.Running))
	cancel()
	if o := <-came; o.err == nil {
		t.Errorf("the create came to %+v, want no answer", o)
	}
}

func TestACreateThatComesToNothing(t *testing.T) {
	_, c := start(t, cloud.Config{})
	c.inject(`{"op": "create", "failCreate": "quota_exceeded"}`)
	if a := c.want(200, http.MethodPost, zoneA, one); a.State != "PROVISIONING" {
		t.Errorf("the create is answered with %+v, want it accepted", a)
	}
	c.await(oneA, gone)
	path := "/v1/zones/a/operations?name=one"
	if a := c.want(200, http.MethodGet, path, ""); len(a.Operations) != 1 || !a.Operations[0].Done || a.Operations[0].Error != "quota_exceeded" {
		t.Errorf("the operations are %+v, want one that ended with quota_exceeded", a.Operations)
	}
	c.want(200, http.MethodPost, zoneA, `{"name": "one", "requestID": "r2"}`)
	c.await(oneA, in(cloud.Running))
	if a := c.want(200, http.MethodGet, path, ""); len(a.Operations) != 2 || a.Operations[0].Error != "" {
		t.Errorf("the operations are %+v, want the good one first", a.Operations)
	}
}

func TestAnInstanceThatDies(t *testing.T) {
	_, c := start(t, cloud.Config{})
	c.want(200, http.MethodPost, zoneA, one)
	up := c.running(oneA)
	c.want(204, http.MethodPost, "/admin/zones/a/instances/one/kill", "")
	c.deaf(up)
	if a := c.want(200, http.MethodGet, oneA, ""); a.State != "STOPPED" {
		t.Errorf("it is %s, want STOPPED", a.State)
	}
	c.want(409, http.MethodPost, zoneA, `{"name": "one", "requestID": "r2"}`)
	c.want(204, http.MethodDelete, oneA, "")
	c.await(oneA, gone)
	c.want(404, http.MethodPost, "/admin/zones/a/instances/one/kill", "")
}

func TestCapacity(t *testing.T) {
	_, c := start(t, cloud.Config{Conditions: cloud.Conditions{Capacity: 1}})
	c.want(200, http.MethodPost, zoneA, one)
	const two = `{"name": "two"}`
	if a := c.want(429, http.MethodPost, zoneA, two); a.Code != "quota_exceeded" {
		t.Errorf("the answer is %+v, want quota_exceeded", a)
	}
	c.want(200, http.MethodPost, zoneA, one)
	c.want(204, http.MethodDelete, oneA, "")
	c.await(oneA, gone)
	c.want(200, http.MethodPost, zoneA, two)
}

// With a lag of a day, the chance that an answer is recent enough to show what was made just now is next to nothing.
func TestAnswersLag(t *testing.T) {
	_, c := start(t, cloud.Config{})
	c.want(204, http.MethodPut, "/admin/conditions", `{"lagMillis": 86400000}`)
	c.want(200, http.MethodPost, zoneA, one)
	c.want(404, http.MethodGet, oneA, "")
	if a := c.want(200, http.MethodGet, zoneA, ""); len(a.Instances) != 0 {
		t.Errorf("the list is %+v, want it empty yet", a.Instances)
	}
	c.want(409, http.MethodPost, zoneA, `{"name": "one"}`)
	c.want(204, http.MethodPost, "/admin/heal", "")
	c.await(oneA, in(cloud.Running))
	c.want(204, http.MethodPut, "/admin/conditions", `{"lagMillis": 86400000}`)
	c.want(204, http.MethodDelete, oneA, "")
	c.want(404, http.MethodDelete, "/v1/zones/a/instances/two", "")
}

func TestRandomFaultsComeFromTheirSeed(t *testing.T) {
	statuses := func(seed uint64) (got []int) {
		_, c := start(t, cloud.Config{Conditions: cloud.Conditions{
			Probability: 0.5, Seed: seed, Faults: []cloud.Fault{{Status: 500}, {Op: "list", Status: 503}, {Op: "create", Status: 403}},
		}})
		for range 60 {
			got = append(got, c.call(http.MethodGet, zoneA, "").status)
		}
		return got
	}
	first, again, other := statuses(1), statuses(1), statuses(2)
	if !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Errorf("with the seeds 1, 1 and 2 the answers were\n%v\n%v\n%v", first, again, other)
	}
	for status, want := range map[int]bool{200: true, 500: true, 503: true, 403: false} {
		if slices.Contains(first, status) != want {
			t.Errorf("among %v, %d is wrong", first, status)
		}
	}
}

func TestAdminRefuses(t *testing.T) {
	_, call := start(t, cloud.Config{})
	tests := []struct{ name, method, path, body string }{
		{"an unknown operation", http.MethodPost, "/admin/faults", `{"op": "make"}`},
		{"a status that is no error", http.MethodPost, "/admin/faults", `{"status": 200}`},
		{"a negative delay", http.MethodPost, "/admin/faults", `{"effectDelayMillis": -1}`},
		{"an unknown field", http.MethodPost, "/admin/faults", `{"delay": 1}`},
		{"a word that is none", http.MethodPost, "/admin/faults", `{"failCreate": "a b"}`},
		{"a probability beyond 1", http.MethodPut, "/admin/conditions", `{"probability": 1.5}`},
		{"a negative capacity", http.MethodPut, "/admin/conditions", `{"capacity": -1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { caller{t, call.url}.want(400, tt.method, tt.path, tt.body) })
	}
}
