package gcptest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/encoding/protojson"
)

// Fault is something that goes wrong with one request.
type Fault struct {
	// Method is which requests it hits, such as "instances.insert". Defaults to all.
	Method string
	// Skip is how many of them it lets pass first, and Times how many it hits then. Times defaults to 1.
	Skip, Times int

	// Status and Body are the answer of a request that has no effect. Body defaults to one that fits the status.
	Status int
	Body   string
	// RetryAfter is a header of the answer, in seconds.
	RetryAfter string

	// Hang accepts the request, which has no effect, and never answers.
	Hang bool
	// LoseAnswer lets the request take effect and closes the connection instead of answering.
	LoseAnswer bool
	// HoldAnswer lets the request take effect, and holds the answer back until the channel is closed.
	HoldAnswer <-chan struct{}
	// Late lets an insert take effect only after that long, and hangs until then.
	Late time.Duration

	// Fails lets the operation of an insert fail when it ends: its error, in the JSON of the API. Vanishes says that the
	// machine is not visible even while the operation goes on.
	Fails    string
	Vanishes bool
	// FailStatus is the HTTP status of the failed operation. Defaults to 503.
	FailStatus int
	// Hidden makes a machine that reads see only after that long. It has its name from the beginning.
	Hidden time.Duration
}

// Inject lets something go wrong.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults = append(s.faults, &f)
}

// Heal takes all faults back, and the lag.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.lag, s.unreached = nil, 0, map[string]bool{}
}

// strike returns the fault that hits this request, or one that does nothing.
func (s *Server) strike(method string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[method]++
	for _, f := range s.faults {
		if f.Times == 0 || f.Method != "" && f.Method != method {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		f.Times--
		return *f
	}
	return Fault{}
}

// hangs waits until the client has gone, or for a time.
func hangs(ctx context.Context, most time.Duration) {
	var late <-chan time.Time
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-ctx.Done():
	case <-late:
	}
}

// failure reads the error of an operation.
func (f Fault) failure() *computepb.Error {
	if f.Fails == "" {
		return nil
	}
	e := new(computepb.Error)
	if err := protojson.Unmarshal([]byte(f.Fails), e); err != nil {
		panic("gcptest: Fails is no error of an operation: " + err.Error())
	}
	return e
}

// problem is an answer that says no.
type problem struct {
	status  int
	reason  string
	message string
	domain  string
}

func (p problem) Error() string { return p.message }

// write writes the body that the API has for it.
func (p problem) write(w http.ResponseWriter) {
	domain := p.domain
	if domain == "" {
		domain = "global"
	}
	body, _ := json.Marshal(map[string]any{"error": map[string]any{
		"code": p.status, "message": p.message,
		"errors": []any{map[string]any{"message": p.message, "domain": domain, "reason": p.reason}},
	}})
	writeBody(w, p.status, body)
}

func writeBody(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// write writes the answer of a fault.
func (f Fault) write(w http.ResponseWriter) {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	if f.Body != "" {
		writeBody(w, f.Status, []byte(f.Body))
		return
	}
	reasons := map[int]problem{
		http.StatusForbidden: {reason: "forbidden", message: "Required permission is missing"},
		http.StatusServiceUnavailable: {reason: "backendError",
			message: "Internal error. Please try again or contact Google Support. (Code: '5913B')"},
	}
	p, ok := reasons[f.Status]
	if !ok {
		p = problem{reason: "internalError", message: http.StatusText(f.Status)}
	}
	p.status = f.Status
	p.write(w)
}
