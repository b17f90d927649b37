package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors of stores. Others mean that the store itself failed, and that nothing is known to have been written.
var (
	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("proxy not found")
	// ErrConflict: the record changed since the version at hand, or its name is in another life. Nothing was written; the
	// caller reads again.
	ErrConflict = errors.New("proxy changed meanwhile")
	// ErrTerminating: the name's earlier proxy is still being deleted. The caller tries again when it is gone.
	ErrTerminating = errors.New("the earlier proxy of that name is still being deleted")
	// ErrOtherSource: the name is declared by somebody else, whose declaration stays.
	ErrOtherSource = errors.New("declared by another source")
)

// Store is what the fleet needs to know of proxies and writes about them.
//
// A record is a [Proxy]: its metadata (finalizer and annotations), its spec and its status. A version names one state of
// one record; it is opaque, and each write that changes anything gives the record another. All methods may be called
// concurrently, and what they return belongs to the caller.
type Store interface {
	// Get returns a record, or [ErrNotFound]. It may be stale, for a cache may stand behind it, but within one process it
	// never goes back behind what this store answered or wrote before.
	Get(ctx context.Context, k Key) (*Proxy, error)
	// List returns all records in the order of their keys, as stale as Get.
	List(ctx context.Context) ([]*Proxy, error)
	// Live returns what each UID holds, complete and no older than the call, or an error. What is not in it may be deleted
	// by its caller, so a cache cannot answer it.
	Live(ctx context.Context) (map[string]Held, error)
	// Watch calls fn with the key of each record that exists, then once or more after each change of a record or of a
	// Secret that it refers to, and after its removal, until ctx ends (then nil) or the watch is lost for good. Changes
	// coalesce, so a state may be skipped. fn runs on one goroutine and does not block.
	Watch(ctx context.Context, fn func(Key)) error
	// UpdateMeta writes finalizer and annotations of p and nothing else. The last finalizer's removal from a record that is
	// being deleted removes the record. For versions see UpdateStatus.
	UpdateMeta(ctx context.Context, p *Proxy) (*Proxy, error)
	// UpdateStatus writes the status of p and nothing else. Both writes compare p.UID and p.Version with what is stored and
	// return [ErrConflict] when they differ, [ErrNotFound] when there is no record; they return the record as it is stored
	// then. A write that would change nothing still compares, and keeps the version: so a caller makes sure that what it
	// read is what is stored.
	UpdateStatus(ctx context.Context, p *Proxy) (*Proxy, error)
	// Inputs resolves what the spec of p refers to. A reference that leads nowhere is an [InputError].
	Inputs(ctx context.Context, p *Proxy) (Inputs, error)
}

// Held is what the record of a UID holds.
type Held struct {
	Key
	Mode     Mode
	Phase    Phase
	Deleting bool
	Instance Instance
}

// HeldBy is what a record holds.
func HeldBy(p *Proxy) Held {
	return Held{Key: p.Key, Mode: p.Spec.Canonical().Mode, Phase: p.Status.Phase, Deleting: p.Deleting, Instance: p.Status.Instance}
}

// Declaration is what somebody wants a proxy to be.
type Declaration struct {
	Spec        Spec
	Annotations map[string]string
}

// Declarer is for those who want proxies: the applier of documents, embedders, tests. A source is a name for one who
// declares; each record belongs to the source that first declared it. All methods may be called concurrently.
type Declarer interface {
	// Put declares a proxy or changes its declaration. A new name gets a UID and the time of its creation, which then stay;
	// the generation rises when the canonical spec changed; a declaration that changes nothing writes nothing. An annotation
	// is set when the source declares it for the first time or with another value than before, and removed when the source
	// leaves it out and nobody else has written it since; otherwise it stays as it is.
	//
	// A spec that [Validate] or [ValidateUpdate] refuses is their error, a name that is still being deleted
	// [ErrTerminating], one of another source [ErrOtherSource]; none of them changes anything.
	Put(ctx context.Context, k Key, d Declaration, source string) (*Proxy, error)
	// Delete removes a record, or marks it as being deleted where it has a finalizer. Of an unknown name it is nil.
	Delete(ctx context.Context, k Key) error
	// Declared returns the keys that belong to a source, in order, without those that are being deleted.
	Declared(ctx context.Context, source string) ([]Key, error)
}

// The waits between the attempts of Update.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = time.Second
)

// Update reads a record, lets change edit it, and writes it with write, a method of the same store, until that does not
// conflict any more. Between attempts it waits a little, from 10 ms to 1 s, so that a cache can catch up. change may run
// more than once; its error ends the attempts.
func Update(ctx context.Context, s Store, k Key, write func(context.Context, *Proxy) (*Proxy, error), change func(*Proxy) error) (*Proxy, error) {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		p, err := s.Get(ctx, k)
		if err != nil {
			return nil, err
		}
		if err := change(p); err != nil {
			return nil, err
		}
		p, err = write(ctx, p)
		if !errors.Is(err, ErrConflict) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; last attempt: %w", ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}
