package gcptest

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/proto"
)

// Config says what the cloud is like. Its zero value is ready.
type Config struct {
	// Project is the only one. Defaults to "test-project".
	Project string
	// Zones are those that exist. Defaults to us-central1-a, -b and europe-west1-b.
	Zones []string
	// Boot is how long a machine takes to run, Insert how long the operation that makes it goes on, and Stop how long a machine
	// takes to go. They default to nothing.
	Boot, Insert, Stop time.Duration
	// PageSize is the most that a page of a list holds. Defaults to 500, as at the real API.
	PageSize int
	// Address returns the external address of a new machine. Defaults to addresses of a network for documentation.
	Address func(name string) string
	// Token is what requests must be authorized with. Defaults to none, which asks for nothing.
	Token string
}

// Server is the cloud. All methods may be called concurrently.
type Server struct {
	config Config
	mux    *http.ServeMux

	mu         sync.Mutex
	machines   []*Machine
	operations []*operation
	ids        uint64
	faults     []*Fault
	lag        time.Duration
	unreached  map[string]bool
	counts     map[string]int
}

// New makes an empty cloud.
func New(c Config) *Server {
	c.Project = cmp.Or(c.Project, "test-project")
	c.PageSize = cmp.Or(c.PageSize, 500)
	if len(c.Zones) == 0 {
		c.Zones = []string{"us-central1-a", "us-central1-b", "europe-west1-b"}
	}
	s := &Server{config: c, ids: 1000, unreached: map[string]bool{}, counts: map[string]int{}}
	s.routes()
	return s
}

// Machine is a virtual machine in all of its life. A moment that has not come is zero.
type Machine struct {
	Zone, Name string
	ID         uint64
	Resource   *computepb.Instance // as it was asked for
	Created    time.Time
	Seen       time.Time // reads do not see it earlier
	Runs       time.Time
	Stopped    time.Time // it was taken away, and is TERMINATED
	Deleted    time.Time // its deletion was asked for
	Gone       time.Time
}

// there says whether a machine is there at a moment.
func (m *Machine) there(at time.Time) bool {
	return !m.Created.After(at) && (m.Gone.IsZero() || m.Gone.After(at))
}

// seen says whether reads see a machine at a moment.
func (m *Machine) seen(at time.Time) bool { return m.there(at) && !m.Seen.After(at) }

// Status is the machine's at a moment, "" when it is not there.
func (m *Machine) Status(at time.Time) string {
	passed := func(moment time.Time) bool { return !moment.IsZero() && !moment.After(at) }
	switch {
	case !m.there(at):
		return ""
	case passed(m.Deleted):
		return "STOPPING"
	case passed(m.Stopped):
		return "TERMINATED"
	case passed(m.Runs):
		return "RUNNING"
	}
	return "PROVISIONING"
}

// show is the machine as the API shows it at a moment.
func (m *Machine) show(s *Server, at time.Time) *computepb.Instance {
	vm := proto.CloneOf(m.Resource)
	vm.Kind = new("compute#instance")
	vm.Id = new(m.ID)
	vm.Status = new(m.Status(at))
	vm.CreationTimestamp = new(m.Created.Format(time.RFC3339Nano))
	vm.Zone = new(s.link("zones/" + m.Zone))
	vm.SelfLink = new(s.link("zones/" + m.Zone + "/instances/" + m.Name))
	if vm.GetStatus() != "RUNNING" { // addresses come late, and go early
		for _, nic := range vm.GetNetworkInterfaces() {
			for _, c := range nic.GetAccessConfigs() {
				c.NatIP = nil
			}
			for _, c := range nic.GetIpv6AccessConfigs() {
				c.ExternalIpv6 = nil
			}
		}
	}
	return vm
}

// operation is what becomes of an insert or a delete.
type operation struct {
	id        uint64
	kind      string // insert or delete
	zone      string
	target    string // the machine's name
	targetID  uint64
	requestID string
	began     time.Time
	ends      time.Time
	failure   *computepb.Error
	status    int32 // the HTTP status of the failure
}

func (o *operation) name() string { return "operation-" + strconv.FormatUint(o.id, 10) }

// show is the operation as the API shows it at a moment.
func (o *operation) show(s *Server, at time.Time) *computepb.Operation {
	op := &computepb.Operation{
		Kind: new("compute#operation"), Id: new(o.id), Name: new(o.name()),
		OperationType: new(o.kind), Zone: new(s.link("zones/" + o.zone)),
		TargetLink: new(s.link("zones/" + o.zone + "/instances/" + o.target)), TargetId: new(o.targetID),
		InsertTime: new(o.began.Format(time.RFC3339Nano)), StartTime: new(o.began.Format(time.RFC3339Nano)),
		Status: computepb.Operation_RUNNING.Enum(), User: new("tester@example.com"),
		SelfLink: new(s.link("zones/" + o.zone + "/operations/" + o.name())),
	}
	if o.requestID != "" {
		op.ClientOperationId = new(o.requestID)
	}
	if !o.ends.After(at) {
		op.Status = computepb.Operation_DONE.Enum()
		op.Progress = new(int32(100))
		op.EndTime = new(o.ends.Format(time.RFC3339Nano))
		op.Error = o.failure
		if o.failure != nil {
			op.HttpErrorStatusCode = new(o.status)
			op.HttpErrorMessage = new(http.StatusText(int(o.status)))
		}
	}
	return op
}

func (s *Server) link(path string) string {
	return "https://www.googleapis.com/compute/v1/projects/" + s.config.Project + "/" + path
}

// nextID returns a numeric id that nothing had before. The caller holds the mutex.
func (s *Server) nextID() uint64 {
	s.ids++
	return s.ids
}

// find returns the machine of a name, or of a numeric id as the API takes it too, that is as wanted, or nil. The caller holds
// the mutex.
func (s *Server) find(zone, name string, wanted func(*Machine, time.Time) bool, at time.Time) *Machine {
	for _, m := range slices.Backward(s.machines) {
		if m.Zone == zone && (m.Name == name || strconv.FormatUint(m.ID, 10) == name) && wanted(m, at) {
			return m
		}
	}
	return nil
}

// History returns all machines that there ever were, in the order of their making.
func (s *Server) History() []Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Machine, 0, len(s.machines))
	for _, m := range s.machines {
		all = append(all, *m)
	}
	return all
}

// Requests returns how often each method was called, such as "instances.get".
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// Plant makes a machine as somebody else would, which runs at once.
func (s *Server) Plant(zone string, vm *computepb.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	vm = proto.CloneOf(vm)
	s.dress(vm)
	s.machines = append(s.machines, &Machine{Zone: zone, Name: vm.GetName(), ID: s.nextID(), Resource: vm, Created: now, Runs: now})
}

// Preempt takes a spot machine away: it is TERMINATED from now on. It says whether the machine was there.
func (s *Server) Preempt(zone, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.find(zone, name, (*Machine).there, time.Now())
	if m != nil {
		m.Stopped = time.Now()
	}
	return m != nil
}

// Vanish lets a machine be gone at once, as if somebody had deleted it elsewhere. It says whether the machine was there.
func (s *Server) Vanish(zone, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.find(zone, name, (*Machine).there, time.Now())
	if m != nil {
		m.Deleted, m.Gone = time.Now(), time.Now()
	}
	return m != nil
}

// Lag lets reads answer from now on what was true that long ago.
func (s *Server) Lag(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = d
}

// Unreachable lets lists lack these zones from now on, and no others.
func (s *Server) Unreachable(zones ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreached = map[string]bool{}
	for _, zone := range zones {
		s.unreached[zone] = true
	}
}

// dress gives a machine the addresses that it will show when it runs. The caller holds the mutex.
func (s *Server) dress(vm *computepb.Instance) {
	n := s.ids + 1
	octets := strconv.FormatUint(n/250%250, 10) + "." + strconv.FormatUint(n%250+1, 10)
	external := "198.18." + octets
	if s.config.Address != nil {
		external = s.config.Address(vm.GetName())
	}
	for _, nic := range vm.GetNetworkInterfaces() {
		nic.NetworkIP = new("10.128." + octets)
		for _, c := range nic.GetAccessConfigs() {
			c.NatIP = new(external)
		}
		for _, c := range nic.GetIpv6AccessConfigs() {
			c.ExternalIpv6 = new("2001:db8::" + strconv.FormatUint(n, 16))
		}
	}
}
