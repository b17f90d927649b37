package gcptest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// maxBody bounds a request. The real API takes less than this as metadata.
const maxBody = 4 << 20

// call is one request, with the fault that hits it.
type call struct {
	*http.Request
	body  []byte
	fault Fault
	now   time.Time
}

func (s *Server) routes() {
	s.mux = http.NewServeMux()
	const project = "/compute/v1/projects/{project}"
	s.handle("GET "+project+"/aggregated/instances", "instances.aggregatedList", s.aggregatedList,
		"filter", "maxResults", "pageToken", "returnPartialSuccess")
	s.handle("GET "+project+"/zones/{zone}/instances/{instance}", "instances.get", s.get)
	s.handle("DELETE "+project+"/zones/{zone}/instances/{instance}", "instances.delete", s.delete, "requestId")
	s.handle("POST "+project+"/zones/{zone}/instances", "instances.insert", s.insert, "requestId")
	s.handle("GET "+project+"/zones/{zone}/operations/{operation}", "zoneOperations.get", s.operation)
	s.handle("GET "+project+"/zones/{zone}/operations", "zoneOperations.list", s.listOperations,
		"maxResults", "orderBy", "pageToken")
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeBody(w, http.StatusNotFound, []byte("<!DOCTYPE html><title>Error 404 (Not Found)!!1</title>"))
	})
}

// handle serves one method, with the query parameters that it knows.
func (s *Server) handle(pattern, method string, answer func(call) (proto.Message, error), parameters ...string) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		// Read at once: while there is something to read, a server does not notice that its client has gone.
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		c := call{Request: r, body: body, fault: s.strike(method), now: time.Now()}
		switch {
		case c.fault.Hang:
			hangs(r.Context(), 0)
			panic(http.ErrAbortHandler)
		case c.fault.Status != 0:
			c.fault.write(w)
			return
		}
		message, err := s.answer(c, answer, parameters)
		if c.fault.HoldAnswer != nil {
			select {
			case <-c.fault.HoldAnswer:
			case <-r.Context().Done():
			}
		}
		if c.fault.LoseAnswer {
			panic(http.ErrAbortHandler)
		}
		if err != nil {
			p, ok := err.(problem) //nolint:errorlint // it is never wrapped
			if !ok {
				p = invalid("%v", err)
			}
			p.write(w)
			return
		}
		text, err := protojson.Marshal(message)
		if err != nil {
			p := problem{status: http.StatusInternalServerError, reason: "internalError", message: err.Error()}
			p.write(w)
			return
		}
		writeBody(w, http.StatusOK, text)
	})
}

// answer checks what is the same for every method, and answers.
func (s *Server) answer(c call, answer func(call) (proto.Message, error), parameters []string) (proto.Message, error) {
	if s.config.Token != "" && c.Header.Get("Authorization") != "Bearer "+s.config.Token {
		return nil, problem{status: http.StatusUnauthorized, reason: "authError", message: "Invalid Credentials"}
	}
	if p := c.PathValue("project"); p != s.config.Project {
		return nil, problem{status: http.StatusNotFound, reason: "notFound", message: "The resource 'projects/" + p + "' was not found"}
	}
	if zone := c.PathValue("zone"); zone != "" && !slices.Contains(s.config.Zones, zone) {
		return nil, invalid("Invalid value for field 'zone': '%s'. Unknown zone.", zone)
	}
	for name := range c.URL.Query() {
		if !slices.Contains(parameters, name) {
			return nil, badRequest("Invalid JSON payload received. Unknown name %q: Cannot bind query parameter. "+
				"Field '%s' could not be found in request message.", name, name)
		}
	}
	return answer(c)
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" && r.Method == http.MethodPost { // where keys of service accounts are exchanged
		s.token(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	fault := s.strike("token")
	if fault.Status != 0 {
		writeBody(w, fault.Status, []byte(fault.Body))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if r.PostFormValue("grant_type") == "" {
		writeBody(w, http.StatusBadRequest, []byte(`{"error":"invalid_request"}`))
		return
	}
	writeBody(w, http.StatusOK, fmt.Appendf(nil, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, s.config.Token))
}

func invalid(format string, args ...any) problem {
	return problem{status: http.StatusBadRequest, reason: "invalid", message: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) problem {
	return problem{status: http.StatusBadRequest, reason: "badRequest", message: fmt.Sprintf(format, args...)}
}

func (s *Server) missing(zone, name string) problem {
	return problem{status: http.StatusNotFound, reason: "notFound",
		message: fmt.Sprintf("The resource 'projects/%s/zones/%s/instances/%s' was not found", s.config.Project, zone, name)}
}

func (s *Server) get(c call) (proto.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := c.now.Add(-s.lag)
	m := s.find(c.PathValue("zone"), c.PathValue("instance"), (*Machine).seen, at)
	if m == nil {
		return nil, s.missing(c.PathValue("zone"), c.PathValue("instance"))
	}
	return m.show(s, at), nil
}

// delete begins a deletion. It never lags: what changes is the truth.
func (s *Server) delete(c call) (proto.Message, error) {
	zone := c.PathValue("zone")
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.find(zone, c.PathValue("instance"), (*Machine).there, c.now)
	if m == nil {
		return nil, s.missing(zone, c.PathValue("instance"))
	}
	if m.Deleted.IsZero() {
		m.Deleted, m.Gone = c.now, c.now.Add(s.config.Stop)
	}
	op := &operation{id: s.nextID(), kind: "delete", zone: zone, target: m.Name, targetID: m.ID, began: c.now, ends: m.Gone}
	s.operations = append(s.operations, op)
	return op.show(s, c.now), nil
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// insert begins the making of a machine.
func (s *Server) insert(c call) (proto.Message, error) {
	if c.fault.Late > 0 {
		hangs(context.WithoutCancel(c.Context()), c.fault.Late) // it takes effect although its caller has gone
	}
	zone := c.PathValue("zone")
	vm, err := s.read(c, zone)
	if err != nil {
		return nil, err
	}
	requestID := c.URL.Query().Get("requestId")
	if c.URL.Query().Has("requestId") && !uuid.MatchString(requestID) {
		return nil, invalid("Invalid value for field 'requestId': '%s'. The request ID must be a valid UUID.", requestID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, op := range s.operations {
		if requestID != "" && op.requestID == requestID {
			return op.show(s, now), nil
		}
	}
	if s.find(zone, vm.GetName(), (*Machine).there, now) != nil {
		return nil, problem{status: http.StatusConflict, reason: "alreadyExists",
			message: fmt.Sprintf("The resource 'projects/%s/zones/%s/instances/%s' already exists", s.config.Project, zone, vm.GetName())}
	}
	return s.begin(c, zone, requestID, vm, now).show(s, now), nil
}

// begin makes the machine and its operation. The caller holds the mutex.
func (s *Server) begin(c call, zone, requestID string, vm *computepb.Instance, now time.Time) *operation {
	s.dress(vm)
	m := &Machine{Zone: zone, Name: vm.GetName(), ID: s.nextID(), Resource: vm, Created: now,
		Seen: now.Add(c.fault.Hidden), Runs: now.Add(s.config.Boot)}
	op := &operation{id: s.nextID(), kind: "insert", zone: zone, target: m.Name, targetID: m.ID, requestID: requestID,
		began: now, ends: now.Add(s.config.Insert), failure: c.fault.failure(), status: http.StatusServiceUnavailable}
	if c.fault.FailStatus != 0 {
		op.status = int32(c.fault.FailStatus)
	}
	if op.failure != nil {
		m.Runs = time.Time{}
		m.Deleted, m.Gone = op.ends, op.ends
		if c.fault.Vanishes {
			m.Gone = m.Created
		}
	}
	s.machines = append(s.machines, m)
	s.operations = append(s.operations, op)
	return op
}

// read reads and judges the body of an insert.
func (s *Server) read(c call, zone string) (*computepb.Instance, error) {
	if len(c.body) > maxBody {
		return nil, badRequest("Request payload size exceeds the limit.")
	}
	vm := new(computepb.Instance)
	if err := protojson.Unmarshal(c.body, vm); err != nil {
		return nil, badRequest("Invalid JSON payload received. %v", err)
	}
	if err := judge(vm, zone); err != nil {
		return nil, err
	}
	return vm, nil
}

func (s *Server) operation(c call) (proto.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.operations {
		if op.zone == c.PathValue("zone") && op.name() == c.PathValue("operation") {
			return op.show(s, c.now), nil
		}
	}
	return nil, problem{status: http.StatusNotFound, reason: "notFound",
		message: fmt.Sprintf("The resource 'projects/%s/zones/%s/operations/%s' was not found", s.config.Project,
			c.PathValue("zone"), c.PathValue("operation"))}
}

func (s *Server) listOperations(c call) (proto.Message, error) {
	if order := c.URL.Query().Get("orderBy"); order != "" && order != "creationTimestamp desc" {
		return nil, invalid("Invalid value for field 'orderBy': '%s'.", order)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*computepb.Operation
	for _, op := range slices.Backward(s.operations) {
		if op.zone == c.PathValue("zone") {
			all = append(all, op.show(s, c.now))
		}
	}
	if c.URL.Query().Get("orderBy") == "" {
		slices.SortFunc(all, func(a, b *computepb.Operation) int { return strings.Compare(a.GetName(), b.GetName()) })
	}
	from, to, next, err := s.page(c.URL.Query(), len(all))
	if err != nil {
		return nil, err
	}
	return &computepb.OperationList{Kind: new("compute#operationList"), Items: all[from:to], NextPageToken: next}, nil
}

// page returns which part of a list a request asks for, and the token of the next one.
func (s *Server) page(query url.Values, total int) (from, to int, next *string, err error) {
	size := s.config.PageSize
	if most := query.Get("maxResults"); most != "" {
		n, err := strconv.Atoi(most)
		if err != nil || n < 0 || n > 500 {
			return 0, 0, nil, invalid("Invalid value for field 'maxResults': '%s'. Values must be within the range: [0, 500]", most)
		}
		size = min(size, n)
	}
	if token := query.Get("pageToken"); token != "" {
		text, ok := strings.CutPrefix(token, "from-")
		if from, err = strconv.Atoi(text); err != nil || !ok || from < 0 {
			return 0, 0, nil, invalid("Invalid value for field 'pageToken': '%s'.", token)
		}
	}
	from = min(from, total)
	if to = min(from+size, total); to < total {
		next = new(fmt.Sprintf("from-%d", to))
	}
	return from, to, next, nil
}

var labelFilter = regexp.MustCompile(`^labels\.([a-z0-9_-]+) = "([a-z0-9_-]*)"$`)

func (s *Server) aggregatedList(c call) (proto.Message, error) {
	query := c.URL.Query()
	key, value := "", ""
	if filter := query.Get("filter"); filter != "" {
		parts := labelFilter.FindStringSubmatch(filter)
		if parts == nil {
			return nil, invalid("Invalid value for field 'filter': '%s'. Invalid list filter expression.", filter)
		}
		key, value = parts[1], parts[2]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unreached) > 0 && query.Get("returnPartialSuccess") != "true" {
		return nil, problem{status: http.StatusServiceUnavailable, reason: "backendError", message: "A scope could not be reached."}
	}
	at := c.now.Add(-s.lag)
	all := s.labelled(key, value, at)
	from, to, next, err := s.page(query, len(all))
	if err != nil {
		return nil, err
	}
	list := &computepb.InstanceAggregatedList{Kind: new("compute#instanceAggregatedList"), NextPageToken: next,
		Items: map[string]*computepb.InstancesScopedList{}}
	for _, zone := range s.config.Zones {
		list.Items["zones/"+zone] = s.scope(zone, all[from:to], at)
		if s.unreached[zone] {
			list.Unreachables = append(list.Unreachables, s.link("zones/"+zone))
		}
	}
	return list, nil
}

// labelled returns the machines of all zones that can be reached, as far as they have a label. The caller holds the mutex.
func (s *Server) labelled(key, value string, at time.Time) []*Machine {
	var all []*Machine
	for _, zone := range s.config.Zones {
		for _, m := range s.machines {
			wanted := key == "" || m.Resource.GetLabels()[key] == value
			if m.Zone == zone && m.seen(at) && wanted && !s.unreached[zone] {
				all = append(all, m)
			}
		}
	}
	return all
}

// scope is the part of a page that belongs to a zone. The caller holds the mutex.
func (s *Server) scope(zone string, page []*Machine, at time.Time) *computepb.InstancesScopedList {
	part := &computepb.InstancesScopedList{}
	for _, m := range page {
		if m.Zone == zone {
			part.Instances = append(part.Instances, m.show(s, at))
		}
	}
	warn := func(code, message string) {
		part.Warning = &computepb.Warning{Code: new(code), Message: new(message)}
	}
	switch {
	case s.unreached[zone]:
		warn("UNREACHABLE", "The scope 'zones/"+zone+"' could not be reached.")
	case len(part.Instances) == 0:
		warn("NO_RESULTS_ON_PAGE", "There are no results for scope 'zones/"+zone+"' on this page.")
	}
	return part
}
