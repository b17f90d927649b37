package fleet

import "context"

// Elector has one of several processes keep a fleet at a time: the leader. The others stand by.
//
// A term is the time for which a process leads. Terms of different processes may overlap for a moment, when a leader has not
// noticed yet that it lost: leading is a hint and no fence. What must not happen twice is kept from it by the names of
// instances, their incarnations and the versions of records. All methods may be called concurrently.
type Elector interface {
	// Run takes part in the election until ctx ends, and calls lead each time this process is elected. The context of lead
	// ends with the term; lead then ends whatever it has begun, and returns. Run waits for it before it takes part again, so
	// that a process has one term at a time, and before it gives the lead up when ctx ends: the next leader, which need not
	// wait for a lost one to be missed, finds nobody at work. An error of lead ends Run, which returns it; a lead that returns
	// nil early gives up its term. Run returns nil when ctx has ended. It is called once.
	Run(ctx context.Context, lead func(context.Context) error) error
	// Leader returns where the process that leads can be reached by the others, as far as this one knows, and whether it is
	// this one. The address is empty while nobody is known to lead. It may be out of date: whoever is asked there says so.
	Leader() (address string, self bool)
}
