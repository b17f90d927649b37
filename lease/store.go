// Package lease hands healthy proxies to crawlers, and remembers who was banned where.
//
// A crawler acquires a lease from a [Store], sends its requests through the proxy of that lease, reports what came back
// and releases the lease. The store sees to it that no proxy has more leases than it can bear, that no unhealthy proxy is
// handed out, and that a proxy which a target has banned rests from that target for a while, and for that target only.
//
// [Memory] is a Store within this process. It is told which proxies there are by [Memory.Set] and [Memory.Remove]; where
// they come from is its owner's affair. Nothing but the standard library and package secret comes along.
package lease

import (
	"context"
	"errors"
	"time"
)

// Store hands out leases.
//
// A lease is the right to send requests through one proxy for a time: from the moment that it is granted until it is
// released or its time to live (TTL) has passed, whichever comes first. Until then it is open, and counts towards what
// its proxy can bear; from then on it has ended. A target is the name under which a crawler files whatever may ban it,
// mostly a host or a registrable domain; the store only compares targets. The empty target stands for no target in
// particular.
//
// A cooldown keeps a proxy from one target, or from all of them, for one window after a ban was reported. When the window
// is over, the pair of proxy and target is half open: one lease, the trial, may use it. The pair opens for everybody once
// the trial reports [OK] or ends without a verdict; a ban starts another window, which is longer. A pair that nobody has
// tried for a further window opens by itself. Windows begin at the shortest again after a success, and when a pair was left
// alone for as long as its last window. A cooldown of a proxy as a whole, which is the pair with the empty target, keeps it
// from every lease.
//
// A session is a name for requests that should go through one proxy. It has the proxy of its last grant, and keeps it for as
// long as that proxy is free whenever it asks.
//
// All methods may be called by many goroutines at once, and each takes effect at one instant between its call and its
// return. Any of them may answer [ErrNotReady], or the error of its context; what it was asked for may then have happened
// or not. It is safe to call Renew, Release and Report again; it is safe to call Acquire again with the same Request.ID.
type Store interface {
	// Acquire grants as many leases as the request asks for, each of another proxy, or none and an error. It waits no longer
	// than Request.Wait, and never beyond ctx: for a release, an expiry, the end of a cooldown, a recovery or a new proxy,
	// whichever comes first. Of those who wait with the same selector, target and count, the one that has waited longest is
	// served first, and nobody who comes later passes them. What is granted to a caller that has gone is taken back.
	//
	// If no proxy that matches is free, the error is a [*NoMatch], which says why; the caller tries again later, or asks
	// for less. [ErrTTL], [ErrRequestMismatch] and [ErrNotSupported] tell of a request that will never be granted as it
	// is.
	Acquire(ctx context.Context, r Request) (Grant, error)

	// Renew lets an open lease last for ttl from now on, even where that is shorter than what was left of it. A ttl of 0
	// is the TTL that the lease had so far.
	//
	// The error is [ErrUnknown] if the lease has ended or was never granted, and [ErrProxyGone] if its proxy exists no
	// more or was replaced by another one of the same name; the caller acquires a new lease in either case. It is
	// [ErrTTL] if the ttl is negative or above the store's maximum.
	Renew(ctx context.Context, id string, ttl time.Duration) (Lease, error)

	// Release ends a lease. A lease that has ended, or was never granted, is no error: the caller has what it wants.
	Release(ctx context.Context, id string) error

	// Report tells what came back from a target. It may be called any number of times while the lease is open, and for
	// one cooldown window after it has ended, for a crawler often learns of its ban when it is done.
	//
	// A report of [RateLimited] or [Banned] starts a cooldown of the lease's proxy and the target: the report's if it
	// names one, else the lease's, else the proxy as a whole. A pair that is cooling already does not cool any longer for
	// it, and one and the same lease cools a pair once, however often it says so. A report of [OK] on a pair that is not
	// cooling, by the trial if there is one, is the success that ends a series of windows.
	//
	// The error is [ErrInvalidResult] for an outcome that is none of the four, and [ErrUnknown] for a lease that was
	// never granted or ended too long ago. Both are final. A report on a proxy that is gone or was replaced is accepted
	// and changes nothing.
	Report(ctx context.Context, id string, r Report) error
}

// Request says what kind of lease is wanted. The zero value asks for any proxy, for the store's default TTL.
type Request struct {
	// ID makes it safe to ask twice. As long as the leases that a request got are open, the same request with the same ID
	// gets those same leases again, so that a lost answer costs nothing. Choose one that nobody else will, such as
	// [crypto/rand.Text]; without one every request is a new one.
	ID string
	// Selector lists the attributes that a proxy must have, each with that very value. An empty one matches every proxy.
	Selector map[string]string
	// Target is what the lease will be used for: a proxy that cools down for it is not granted.
	Target string
	// TTL is how long the lease lasts unless it is renewed. Defaults to what the store is configured with.
	TTL time.Duration
	// Wait is how long to wait for a proxy to come free. Defaults to not at all. A store that cannot wait answers
	// [ErrNotSupported].
	Wait time.Duration
	// Session names a series of requests that should go through one proxy for as long as that is possible. Defaults to
	// none. A store without sessions answers [ErrNotSupported].
	Session string
	// Count is the number of leases, all of which are granted or none. Defaults to 1. A request that waits for several holds
	// none back from others, and waits in vain where these take them one by one. A store that grants them only one
	// by one answers [ErrNotSupported] to more.
	Count int
}

// Grant is what a request got.
type Grant struct {
	// Leases are as many as were asked for.
	Leases []Lease
	// Moved says that the request's session had another proxy before.
	Moved bool
}

// Lease is the right to use a proxy until Expires.
type Lease struct {
	// ID names the lease in Renew, Release and Report. Whoever knows it may do all three: it cannot be guessed.
	ID string
	// Proxy is where to send requests.
	Proxy Endpoint
	// Target is the request's.
	Target string
	// Expires is when the lease ends unless it is renewed or released before.
	Expires time.Time
	// TTL is the time from the grant, or from the last renewal, to Expires.
	TTL time.Duration
}

// Outcome is how the use of a lease went.
type Outcome string

const (
	// OK says that the target answered as it should.
	OK Outcome = "ok"
	// RateLimited says that the target asked for fewer requests. It starts a cooldown.
	RateLimited Outcome = "rate_limited"
	// Banned says that the target refused the proxy. It starts a cooldown.
	Banned Outcome = "banned"
	// Failed says that the proxy itself did not do its work. It starts no cooldown: whether the proxy is healthy is for
	// probes to say, and whoever runs them hears of it.
	Failed Outcome = "failed"
)

// Report is what a crawler has to say about a lease.
type Report struct {
	Outcome Outcome
	// Target is what the outcome is about. Defaults to the lease's target.
	Target string
}

// The errors of a [Store], beside [*NoMatch] and those of the context.
var (
	// ErrUnknown says that there is no such lease: it was never granted, or has ended.
	ErrUnknown = errors.New("lease: unknown lease")
	// ErrProxyGone says that the proxy of the lease is gone, or another one has taken its name.
	ErrProxyGone = errors.New("lease: the proxy is gone or was replaced")
	// ErrTTL says that a TTL is negative, or above the maximum. It is never cut to fit: whoever asks for a week should
	// find out.
	ErrTTL = errors.New("lease: ttl is negative or above the maximum")
	// ErrInvalidResult says that an outcome is not one of [OK], [RateLimited], [Banned] and [Failed].
	ErrInvalidResult = errors.New("lease: unknown outcome")
	// ErrRequestMismatch says that the request's ID belongs to another request, whose lease is still open.
	ErrRequestMismatch = errors.New("lease: request ID is in use for another request")
	// ErrNotSupported says that the store cannot do what the request asks for.
	ErrNotSupported = errors.New("lease: not supported by this store")
	// ErrNotReady says that the store does not serve leases now, because another process does or because it can no
	// longer keep its promises. The caller tries again later, or elsewhere.
	ErrNotReady = errors.New("lease: the store does not serve leases now")
)
