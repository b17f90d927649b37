package gcp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/proxyfleet/fleet/provider"
)

// insert is what is known of the operation that makes an instance.
type insert struct {
	operation   string // its name
	uid         string
	incarnation string
	seen        time.Time // when it was last asked for
	done        bool
	failure     *provider.Error // what it ended with, or nil
}

// learn takes what an operation says of itself now.
func (i insert) learn(op *computepb.Operation) insert {
	i.operation = op.GetName()
	if target := op.GetTargetId(); target != 0 {
		i.incarnation = strconv.FormatUint(target, 10)
	}
	i.seen = time.Now()
	i.done = op.GetStatus() == computepb.Operation_DONE
	i.failure = outcome(op)
	return i
}

// inserts are the inserts whose machine has not been seen to run, by ID.
type inserts struct {
	mu   sync.Mutex
	byID map[string]insert
}

// keepInserts bounds how long an insert is remembered that nobody asks for any more.
const keepInserts = 24 * time.Hour

func (a *inserts) get(id, uid string) (insert, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := a.byID[id]
	return i, ok && i.uid == uid
}

func (a *inserts) put(id string, i insert) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID == nil {
		a.byID = map[string]insert{}
	}
	for old, i := range a.byID {
		if time.Since(i.seen) > keepInserts {
			delete(a.byID, old)
		}
	}
	a.byID[id] = i
}

func (a *inserts) drop(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byID, id)
}

// requestID is the UUID of an intent: one that is sent again by a transport is the same request. It has the form of a random
// one, because services look at the version.
func requestID(token string) string {
	sum := sha256.Sum256([]byte(token))
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// absent is the error of an instance that is not there. It is what the insert failed with, if that is known. As long as an
// insert has not ended, or could not be asked for, nothing is known: what is not there may come.
func (p *machines) absent(ctx context.Context, op string, ref provider.Ref) error {
	i, found, err := p.lastInsert(ctx, op, ref)
	if err != nil {
		return err
	}
	if found && !i.done {
		if i, found, err = p.ask(ctx, op, ref.ID, i); err != nil {
			return err
		}
	}
	switch {
	case !found || i.done && i.failure == nil:
		return &provider.Error{Op: op, Class: provider.ErrNotFound}
	case !i.done:
		return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: insertRunning,
			Err: fmt.Errorf("operation %s has not ended", i.operation)}
	}
	failed := *i.failure
	failed.Op, failed.CreateFailed = op, true
	return &failed
}

// lastInsert returns the last insert of an ID. One that this process does not know of was sent by an earlier one.
func (p *machines) lastInsert(ctx context.Context, op string, ref provider.Ref) (insert, bool, error) {
	if i, ok := p.inserts.get(ref.ID, ref.UID); ok {
		return i, true, nil
	}
	zone, name, err := place(op, ref.ID)
	if err != nil || name != provider.Name(p.fleet, ref.UID) { // the name says whose the insert was
		return insert{}, false, err
	}
	found, err := p.history.insertOf(ctx, p.client, zone, name)
	if err != nil {
		return insert{}, false, failure(ctx, op, err)
	}
	if found == nil {
		return insert{}, false, nil
	}
	i := insert{uid: ref.UID}.learn(found)
	p.inserts.put(ref.ID, i)
	return i, true, nil
}

// ask asks for the operation of an insert once.
func (p *machines) ask(ctx context.Context, op, id string, i insert) (insert, bool, error) {
	zone, _, err := place(op, id)
	if err != nil {
		return i, false, err
	}
	now, err := p.client.operation(ctx, zone, i.operation)
	switch {
	case notFound(err): // it is forgotten, and with it what became of it
		p.inserts.drop(id)
		return i, false, nil
	case err != nil:
		return i, false, failure(ctx, op, err)
	}
	i = i.learn(now)
	p.inserts.put(id, i)
	return i, true, nil
}

// history finds operations whose names are lost. It lists those of a zone once for all who ask within a short time: after a
// restart there may be many.
type history struct {
	mu    sync.Mutex
	age   time.Duration // what is older is listed again
	zones map[string]chronicle
}

// chronicle is the last insert of each name in a zone.
type chronicle struct {
	at      time.Time
	inserts map[string]*computepb.Operation
}

const (
	// pastInserts is how far back an insert is looked for. Operations are kept for an hour at least.
	pastInserts = time.Hour
	// maxPages bounds how much of a busy zone is read.
	maxPages = 4
)

// insertOf returns the youngest insert of a name, or nil.
func (h *history) insertOf(ctx context.Context, c *client, zone, name string) (*computepb.Operation, error) {
	h.mu.Lock()
	told, ok := h.zones[zone]
	h.mu.Unlock()
	if !ok || time.Since(told.at) > h.age {
		var err error
		if told, err = readChronicle(ctx, c, zone); err != nil {
			return nil, err
		}
		h.mu.Lock()
		if h.zones == nil {
			h.zones = map[string]chronicle{}
		}
		h.zones[zone] = told
		h.mu.Unlock()
	}
	return told.inserts[name], nil
}

// readChronicle lists the operations of a zone from the youngest on. That order is indexed, and asks for no filter, which costs
// quota on every field that is not; what belongs to whom is looked at here.
func readChronicle(ctx context.Context, c *client, zone string) (chronicle, error) {
	told := chronicle{at: time.Now(), inserts: map[string]*computepb.Operation{}}
	token := ""
	for range maxPages {
		operations, next, err := c.operationsPage(ctx, zone, token)
		if err != nil {
			return chronicle{}, err
		}
		old := false
		for _, op := range operations {
			if at, err := time.Parse(time.RFC3339, op.GetInsertTime()); err == nil && told.at.Sub(at) > pastInserts {
				old = true
			}
			name := nameIn(op.GetTargetLink())
			if _, younger := told.inserts[name]; op.GetOperationType() == "insert" && name != "" && !younger {
				told.inserts[name] = op
			}
		}
		if token = next; token == "" || old {
			break
		}
	}
	return told, nil
}

// nameIn returns the name of the machine that a link leads to, or "".
func nameIn(link string) string {
	_, name, found := strings.Cut(link, "/instances/")
	if !found || strings.Contains(name, "/") {
		return ""
	}
	return name
}
