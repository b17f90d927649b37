package provider

import "context"

// Checker is a [Provider] that can say whether its backend can be used, without making anything there.
//
// A target is one part of the backend that can be used or not by itself: a host, an API server, a project, a range of
// addresses. Which there are follows from the configuration alone, so each Check reports the same ones, and their names tell
// operators which part is meant. Targets are labels of metrics: there are few, and none is made from what the backend says.
type Checker interface {
	// Check returns one verdict for each target, at least one in all, and no target twice. It never fails as a whole: what
	// keeps it from judging a target is the verdict on that target, and says nothing about the others.
	//
	// It goes the way that the calls of the provider go, and asks for no more than they do: a backend that is ready is one
	// where they would work now. A backend that is merely full is ready. It changes nothing, neither at the backend nor for
	// calls that are under way, and is cheap enough to be made once every ten seconds for as long as the fleet runs.
	//
	// It returns soon after its context has ended, with [Timeout] for the targets that have not answered by then. A Runner
	// may be waited for, as other calls do. It may be called concurrently with everything else, but a caller who gave it up
	// does not call again before it has returned.
	Check(ctx context.Context) []TargetStatus
}

// Timeout is the reason of a target that did not answer before the check's time was over. A checker may have other reasons.
const Timeout = "Timeout"

// TargetStatus is the verdict on one target. Nothing in it holds a secret: it is shown to everybody who may see the fleet,
// each text clipped as by [Clip].
type TargetStatus struct {
	// Target is the name of the target. It is not empty, and stays.
	Target string
	Ready  bool
	// Reason is a CamelCase word that says why the target is not ready. It stays the same for as long as the cause does:
	// another one counts as news. Required unless it is Ready.
	Reason string
	// Message tells people more. It may be empty, and may differ from check to check.
	Message string
	// Details are facts that the check came across, such as versions and free space, by lowerCamel names. They may be nil,
	// and are the caller's once they are returned.
	Details map[string]string
}
