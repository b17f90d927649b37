package cloud

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds what a caller may send.
const maxBody = 64 << 10

// apiError is an answer that says no, with a stable code.
type apiError struct {
	Status     int    `json:"-"`
	RetryAfter int    `json:"-"`
	Code       string `json:"code"`
	Message    string `json:"message"`
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

func notFound(what string) error {
	return &apiError{Status: 404, Code: what + "_not_found", Message: "there is no such " + what}
}

func badRequest(err error) error {
	return &apiError{Status: 400, Code: "bad_request", Message: err.Error()}
}

// instanceAnswer is an instance as the API shows it.
type instanceAnswer struct {
	ID      int64             `json:"id,string"`
	Zone    string            `json:"zone"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels,omitempty"`
	State   State             `json:"state"`
	Host    string            `json:"host,omitempty"`
	Port    int               `json:"port,omitempty"`
	Created time.Time         `json:"created"`
}

// answer shows an instance as it is at a moment. It has an address from when on it runs.
func (i *Instance) answer(t time.Time) instanceAnswer {
	a := instanceAnswer{ID: i.ID, Zone: i.Zone, Name: i.Name, Labels: i.Labels, State: i.State(t), Created: i.Created}
	if reached(t, i.Running) {
		a.Host, a.Port = "127.0.0.1", i.Port
	}
	return a
}

// etag is what If-Match holds for this very instance.
func (i *Instance) etag() string { return `"` + strconv.FormatInt(i.ID, 10) + `"` }

// page is a part of a list. Its token is where the next one begins; empty at the end.
type page struct {
	Instances     []instanceAnswer `json:"instances"`
	NextPageToken int64            `json:"nextPageToken,omitzero,string"`
}

// operation tells what became of the creation of an instance.
type operation struct {
	InstanceID int64             `json:"instanceID,string"`
	Name       string            `json:"name"`
	Labels     map[string]string `json:"labels,omitempty"`
	Done       bool              `json:"done"`
	// Error is why it came to nothing, in a word.
	Error string `json:"error,omitempty"`
}

type operations struct {
	Operations []operation `json:"operations"`
}

// request is a call whose body was read and whose fate was drawn.
type request struct {
	*http.Request
	body  []byte
	fault Fault
}

func (c *Cloud) routes() http.Handler {
	mux := http.NewServeMux()
	const instances = "/v1/zones/{zone}/instances"
	mux.HandleFunc("POST "+instances, c.call("create", c.create))
	mux.HandleFunc("GET "+instances, c.call("list", c.list))
	mux.HandleFunc("GET "+instances+"/{name}", c.call("get", c.get))
	mux.HandleFunc("DELETE "+instances+"/{name}", c.call("delete", c.delete))
	mux.HandleFunc("GET /v1/zones/{zone}/operations", c.call("operations", c.operations))
	// Something that a proxy can be probed with.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	c.adminRoutes(mux)
	return http.NewCrossOriginProtection().Handler(mux)
}

// ServeHTTP serves both APIs.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.mux.ServeHTTP(w, r) }

// call serves an operation, with what goes wrong. The body is read before anything is delayed, and a delayed effect comes
// also when its caller has gone: that is what makes it a trap.
func (c *Cloud) call(op string, do func(request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			respond(w, nil, badRequest(err))
			return
		}
		call := request{Request: r, body: body, fault: c.draw(op)}
		if !c.pause(call.fault.EffectDelayMillis, nil) {
			panic(http.ErrAbortHandler)
		}
		var answer any
		if err = call.fault.refusal(body); err == nil {
			answer, err = c.inZone(call, do)
		}
		if !c.pause(call.fault.AnswerDelayMillis, r.Context().Done()) || call.fault.LoseAnswer {
			panic(http.ErrAbortHandler)
		}
		respond(w, answer, err)
	}
}

func (c *Cloud) inZone(r request, do func(request) (any, error)) (any, error) {
	if !slices.Contains(c.config.Zones, r.PathValue("zone")) {
		return nil, notFound("zone")
	}
	return do(r)
}

// pause waits, and says whether to go on.
func (c *Cloud) pause(millis int, gone <-chan struct{}) bool {
	if millis == 0 {
		return true
	}
	timer := time.NewTimer(time.Duration(millis) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-gone:
	case <-c.closed:
	}
	return false
}

func (c *Cloud) create(r request) (any, error) {
	var spec Spec
	if err := decode(r.body, &spec); err != nil {
		return nil, err
	}
	if err := spec.validate(); err != nil {
		return nil, err
	}
	var answer instanceAnswer
	err := c.change(func(now time.Time) error {
		i, err := c.make(r.PathValue("zone"), spec, r.fault.FailCreate, now)
		if err == nil {
			answer = i.answer(now)
		}
		return err
	})
	return answer, err
}

// make returns the instance that a request made earlier, or makes one. The record is kept before the process is started:
// a cloud that dies in between finds an instance without a process, never a process without an instance.
func (c *Cloud) make(zone string, spec Spec, failure string, now time.Time) (*Instance, error) {
	if i := c.state.last(func(i *Instance) bool { return spec.RequestID != "" && i.RequestID == spec.RequestID }); i != nil {
		return i, nil
	}
	if c.state.find(zone, spec.Name, now) != nil {
		return nil, &apiError{Status: 409, Code: "already_exists", Message: "the name is taken"}
	}
	if limit := c.weather.Capacity; limit > 0 && c.state.count(now) >= limit {
		return nil, &apiError{Status: 429, Code: "quota_exceeded", Message: "there is no room for another instance"}
	}
	port, err := c.port()
	if err != nil {
		return nil, err
	}
	i := &Instance{
		Zone: zone, Name: spec.Name, Labels: spec.Labels, RequestID: spec.RequestID, Port: port,
		Failure: failure, Created: now, Running: now.Add(c.config.Boot),
	}
	if failure != "" {
		i.Ended = i.Running
	}
	c.state.add(i)
	if err = c.save(); err == nil && failure == "" {
		err = c.startProcess(i, spec)
	}
	if err != nil {
		i.Died = now
	}
	return i, err
}

func (c *Cloud) get(r request) (any, error) {
	var answer instanceAnswer
	err := c.look(func(t time.Time) error {
		i := c.state.find(r.PathValue("zone"), r.PathValue("name"), t)
		if i == nil {
			return notFound("instance")
		}
		answer = i.answer(t)
		return nil
	})
	return answer, err
}

func (c *Cloud) list(r request) (any, error) {
	query := r.URL.Query()
	labels := map[string]string{}
	for _, pair := range query["label"] {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, badRequest(fmt.Errorf("label %q is not key=value", pair))
		}
		labels[key] = value
	}
	from, err := strconv.ParseInt("0"+query.Get("pageToken"), 10, 64)
	if err != nil {
		return nil, badRequest(errors.New("pageToken is none of ours"))
	}
	answer := page{Instances: []instanceAnswer{}}
	err = c.look(func(t time.Time) error {
		for _, i := range c.state.Instances {
			if i.Zone != r.PathValue("zone") || !i.exists(t) || !i.has(labels) || i.ID < from {
				continue
			}
			if len(answer.Instances) == c.config.PageSize {
				answer.NextPageToken = i.ID
				break
			}
			answer.Instances = append(answer.Instances, i.answer(t))
		}
		return nil
	})
	return answer, err
}

// delete begins the deletion. A caller who names an id in If-Match hits that instance or none.
func (c *Cloud) delete(r request) (any, error) {
	return nil, c.change(func(now time.Time) error {
		i := c.state.find(r.PathValue("zone"), r.PathValue("name"), now)
		if i == nil {
			return notFound("instance")
		}
		if match := r.Header.Get("If-Match"); match != "" && match != i.etag() {
			return &apiError{Status: 412, Code: "id_mismatch", Message: "the instance of that name has another id"}
		}
		if !i.Stopping.IsZero() {
			return nil
		}
		i.Stopping = now
		if gone := now.Add(c.config.Stop); i.Ended.IsZero() || gone.Before(i.Ended) {
			i.Ended = gone
		}
		c.end(i.ID)
		return nil
	})
}

// operations tells of the creations of a name, the youngest first.
func (c *Cloud) operations(r request) (any, error) {
	answer := operations{Operations: []operation{}}
	name := r.URL.Query().Get("name")
	err := c.look(func(t time.Time) error {
		for _, i := range slices.Backward(c.state.Instances) {
			if i.Zone != r.PathValue("zone") || i.Name != name || t.Before(i.Created) {
				continue
			}
			o := operation{InstanceID: i.ID, Name: i.Name, Labels: i.Labels, Done: reached(t, i.Running)}
			if o.Done {
				o.Error = i.Failure
			}
			answer.Operations = append(answer.Operations, o)
		}
		return nil
	})
	return answer, err
}

// look reads the world as it was a moment ago.
func (c *Cloud) look(read func(t time.Time) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return errClosed
	}
	now := time.Now()
	c.observe(now)
	return read(c.weather.moment(now))
}

// decode reads exactly one JSON document without unknown fields.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badRequest(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return badRequest(errors.New("something follows the document"))
	}
	return nil
}

func respond(w http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	if err != nil {
		refusal, ok := errors.AsType[*apiError](err)
		if !ok {
			refusal = &apiError{Status: 500, Code: "internal", Message: err.Error()}
		}
		if refusal.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(refusal.RetryAfter))
		}
		status, answer = refusal.Status, refusal
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // The caller may have gone.
}
