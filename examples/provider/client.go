package examplecloud

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// This file is what an author whose cloud has a library for Go writes least of: the way to the cloud and back.

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// labels are the marks as the cloud stores them. They are made to fit.
func labels(m provider.Marks) map[string]string {
	return map[string]string{"proxyfleet-fleet": m.Fleet, "proxyfleet-uid": m.UID, "proxyfleet-hash": m.Hash}
}

// owned is what the cloud says of whose something is.
type owned struct{ Labels map[string]string }

func (o owned) marks() provider.Marks {
	return provider.Marks{Fleet: o.Labels["proxyfleet-fleet"], UID: o.Labels["proxyfleet-uid"], Hash: o.Labels["proxyfleet-hash"]}
}

func (o owned) ours(fleet, uid string) bool { return o.marks().Fleet == fleet && o.marks().UID == uid }

// instance is an instance as the cloud shows it.
type instance struct {
	owned
	ID, Zone, Name, State, Host string
	Port                        int
	Created                     time.Time
}

// instance is what the fleet makes of it; that of nothing is nothing.
func (i instance) instance() provider.Instance {
	if i.ID == "" {
		return provider.Instance{}
	}
	// What is not known is Stopped: the fleet makes another.
	state := map[string]provider.State{
		"PROVISIONING": provider.Provisioning, "RUNNING": provider.Running, "STOPPING": provider.Terminating,
	}[i.State]
	return provider.Instance{
		ID: "zones/" + i.Zone + "/instances/" + i.Name, Incarnation: i.ID, Marks: i.marks(),
		State: cmp.Or(state, provider.Stopped), Host: i.Host, Port: i.Port, Created: i.Created,
	}
}

// operation is what the cloud tells of a creation.
type operation struct {
	owned
	Error string
}

// failure returns the error of a creation that came to nothing, and for any other the one that says that nothing is there.
func (o operation) failure(notFound error) error {
	class := provider.ErrPermanent
	switch o.Error {
	case "":
		return notFound
	case "quota_exceeded":
		class = provider.ErrQuotaExceeded
	case "internal":
		class = provider.ErrTransient
	}
	return &provider.Error{Op: "get", Class: class, CreateFailed: true, Err: fmt.Errorf("the create came to nothing: %q", o.Error)}
}

// one makes a call that is answered by an instance. A 200 without one is of some other server.
func (p *Provider) one(ctx context.Context, op, method, path string, in any) (instance, error) {
	var i instance
	if err := p.call(ctx, op, method, path, "", in, &i); err != nil {
		return instance{}, err
	}
	if i.ID == "" {
		return instance{}, broken(ctx, op, errors.New("the answer is no instance"))
	}
	return i, nil
}

// call sends one request and reads the answer into out. The match, if there is one, is the only instance that it may hit.
func (p *Provider) call(ctx context.Context, op, method, path, match string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, p.URL+path, body)
	if err != nil {
		return err
	}
	if match != "" {
		r.Header.Set("If-Match", strconv.Quote(match))
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return broken(ctx, op, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return broken(ctx, op, err)
	}
	if answer.StatusCode >= 300 {
		return refused(op, answer, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return broken(ctx, op, err)
	}
	return nil
}

// broken is the error of a call whose outcome is not known.
func broken(ctx context.Context, op string, err error) error {
	if interrupted := provider.Interrupted(ctx, op); interrupted != nil {
		return interrupted
	}
	return &provider.Error{Op: op, Class: provider.ErrTransient, Err: err}
}

// refusal is an answer that says no. It has the code and not the message: servers repeat requests in their messages, and
// a request may hold a password.
type refusal struct {
	status int
	code   string
}

func (r *refusal) Error() string { return fmt.Sprintf("the cloud answered %d %.64q", r.status, r.code) }

// refused goes by the code first: a status says less, for there may be no such instance, but also no such zone.
func refused(op string, answer *http.Response, data []byte) error {
	var said struct{ Code string }
	_ = json.Unmarshal(data, &said) // What is not from the cloud itself has no code.
	e := &provider.Error{Op: op, Class: provider.ErrPermanent, Err: &refusal{answer.StatusCode, said.Code}}
	switch {
	case said.Code == "instance_not_found", said.Code == "id_mismatch":
		e.Class = provider.ErrNotFound
	case answer.StatusCode == http.StatusTooManyRequests:
		e.Class = provider.ErrQuotaExceeded
	case answer.StatusCode >= 500, answer.StatusCode == http.StatusRequestTimeout:
		e.Class = provider.ErrTransient
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
