package provider

import (
	"context"
	"time"

	"github.com/proxyfleet/fleet/secret"
)

// Provider makes instances.
//
// An instance is one machine, pod or listener that runs a forward proxy. Its ID says where it is and how it is called, and
// is known before it exists; its successor under the same name has the same ID. Its incarnation is the backend's own id of
// this very instance, which no other ever has. Its marks say whose it is, and are stored by the same call that makes it:
// there is never an instance of ours without them. An instance without marks, or with those of another fleet or another
// proxy, is not ours: no method changes, returns or counts it.
//
// All methods may be called concurrently, also for the same ID. Every call ends soon after its context does, and nothing is
// sent to the backend after that. No call waits for an instance to become ready or to go: the fleet polls. Longer work, such
// as the transfer of an image, belongs to a [Runner]; while it is under way, Create makes nothing and answers an instance in
// state Provisioning without an incarnation, and the fleet calls the same Create again.
//
// Errors are of type [Error]; others count as transient. A call that its caller canceled is [ErrCanceled], and one whose
// time ran out [ErrTransient]: see [Interrupted]. Secrets of a request are in no error, log or span.
type Provider interface {
	// Plan returns the ID that Create would use for a request. It is pure: no network, no clock, the same answer each time.
	// What the request lacks, and what it asks for but this provider cannot honour, is an [ErrPermanent] that names the field
	// (reasons MissingField and UnsupportedField). The fleet then creates nothing, and keeps what runs, until an edit.
	Plan(r Request) (id string, err error)

	// Create makes the instance, or meets it: an instance of that name with the fleet and UID of the request is returned as
	// it is, with its own hash and whatever state, also when it is stopped or terminating; the fleet compares and decides.
	// An instance of that name with other marks is an [ErrPermanent] with reason NameTaken. When the name is taken and its
	// owner cannot be seen yet, the error is transient.
	//
	// The name is unique at the backend at every moment: two calls at once make one instance. After an error something may
	// exist or come to exist; the fleet keeps the ID until Get proves otherwise. A request whose token the backend has seen
	// may be answered by what the earlier one made.
	Create(ctx context.Context, r Request) (Instance, error)

	// Get returns the instance of an ID, or [ErrNotFound] when there is none, or none with our fleet and the ref's UID. The
	// ref's incarnation is not compared: the fleet does that. What Create has not made yet, because a transfer is under way,
	// is not there. Where the backend tells that a create was accepted and came to
	// nothing, Get returns that error, with its class and CreateFailed set, for as long as the backend remembers.
	//
	// Answers may be old, and go back and forth, within what [Delays] allows for. A place that is no longer configured is an
	// [ErrPermanent] with reason NotConfigured, never ErrNotFound: what may still run there must not be forgotten.
	Get(ctx context.Context, ref Ref) (Instance, error)

	// Delete begins the deletion of an instance with everything that was made for it. It succeeds, and changes nothing, when
	// there is none, when it is not ours, when it is terminating already, and when the ref names another incarnation: a late
	// delete never hits the successor. A ref without incarnation means whichever instance has the ID. A place that is no
	// longer configured is an error as in Get.
	Delete(ctx context.Context, ref Ref) error

	// List returns all instances of this fleet, also those that are stopped or terminating. It is complete or an error: a
	// place that cannot be reached fails the call, so that nobody takes a part for the whole. A single instance whose marks
	// cannot be read may be left out: what is not listed is not deleted.
	List(ctx context.Context) ([]Instance, error)
}

// Runner is a [Provider] with background work: connections, transfers of images, listeners. The fleet runs it for as long
// as it runs itself.
type Runner interface {
	// Run works until ctx ends, and returns when all that it started has ended. An error says that the provider cannot work
	// any more. Calls of the provider that come before Run or after it still end by their context.
	Run(ctx context.Context) error
}

// Opener is a [Runner] whose instances are served by this process. The fleet leases nothing until Opened has returned.
type Opener interface {
	// Opened waits until Run has opened what there was, or until ctx ends, which is its error.
	Opened(ctx context.Context) error
}

// Delayer is a [Provider] that knows how late its backend can be. Others are trusted with [DefaultDelays].
type Delayer interface {
	Delays() Delays
}

// Delays is how late effects and answers of a backend can be.
type Delays struct {
	// Call is how long after its intent a Create may still be sent.
	Call time.Duration
	// Settle is how long after the intent of a create an answer of [ErrNotFound] proves nothing. It covers Call, the way to
	// the backend, the time by which the backend's answers lag behind, and the difference between the clocks of two hosts
	// that lead one after the other. Zero only for what has no lag and lives in this process.
	Settle time.Duration
}

// DefaultDelays are right for a public cloud.
func DefaultDelays() Delays { return Delays{Call: 2 * time.Minute, Settle: 5 * time.Minute} }

// Unwrapper is a decorator of a [Provider].
type Unwrapper interface {
	Unwrap() Provider
}

// As returns the first provider in the chain of decorators of p that is a T: a [Runner], a [Delayer] or another ability.
func As[T any](p Provider) (T, bool) {
	for p != nil {
		if t, ok := p.(T); ok {
			return t, true
		}
		u, ok := p.(Unwrapper)
		if !ok {
			break
		}
		p = u.Unwrap()
	}
	var none T
	return none, false
}

// Request is what an instance is made from.
type Request struct {
	// Name is what the instance is called at the backend: see [Name].
	Name  string
	Marks Marks
	// Token is for backends that answer a repeated request with what the first one made. Each intent has its own; a call
	// that is sent again by a transport keeps it.
	Token     string
	Placement Placement
	// Port is where the proxy is to listen. A provider that listens elsewhere says so in [Instance].
	Port        int
	CloudInit   secret.Text
	Credentials Credentials
}

// Marks are stored with an instance by the call that makes it. Each is at most 63 characters of letters, digits, '-', '_' and
// '.', so that it fits into a label as it is; providers neither truncate nor encode them.
type Marks struct {
	// Fleet is the identity of the installation.
	Fleet string
	// UID is that of the proxy.
	UID string
	// Hash is of the inputs that the instance was made from.
	Hash string
}

// Placement says where and on what the instance runs. A provider refuses a field that it cannot honour, and fills in nothing
// that costs money.
type Placement struct {
	Zone        string
	MachineType string
	Image       string
	DiskSizeGb  int64
}

// Credentials are what the proxy asks its clients for. The zero value asks for nothing.
type Credentials struct {
	Username secret.Text
	Password secret.Text
}

// IsZero says whether the proxy asks for nothing.
func (c Credentials) IsZero() bool { return c.Username.IsZero() && c.Password.IsZero() }

// Ref names an instance.
type Ref struct {
	ID string
	// UID is that of the proxy that it must belong to.
	UID string
	// Incarnation is the only one that Delete may touch. Empty: any.
	Incarnation string
}

// State is what an instance does.
type State string

// The states.
const (
	// Provisioning: it will run, or has no address yet. The fleet polls.
	Provisioning State = "Provisioning"
	// Running: it has an address. The fleet probes it.
	Running State = "Running"
	// Stopped: it will not run again by itself; also paused, and states that are not known. The fleet deletes it and makes
	// another.
	Stopped State = "Stopped"
	// Terminating: it goes. The fleet waits.
	Terminating State = "Terminating"
)

// Instance is one instance as the backend knows it.
type Instance struct {
	ID string
	// Incarnation is empty only while nothing has been made yet; see [Provider].
	Incarnation string
	Marks       Marks
	State       State
	// Host and Port are where the proxy listens. Host is set when it is Running; Port is zero where it is the requested one.
	Host string
	Port int
	// Created is when it was made; zero where that is not known.
	Created time.Time
	// Reason says in a CamelCase word why it is in its state, and Message tells people more, such as the progress of a
	// transfer. Both may be empty.
	Reason  string
	Message string
}
