package leasehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyfleet/fleet/lease"
)

// attempt is one request through one proxy. It has a lease, and connections that are closed with it.
type attempt struct {
	t       *Transport
	request *http.Request // the caller's
	proxy   lease.Endpoint
	target  string
	number  int
	held    *held

	ctx    context.Context
	cancel context.CancelCauseFunc
	clock  *time.Timer // ends it when nothing comes
	stage  atomic.Int32
	body   *sending // of the request, or nil
	links  links
	finish sync.Once
}

// The stages of an attempt, in the order in which it passes through them.
const (
	preparing int32 = iota
	dialling        // the proxy
	asking          // the proxy, for the target
	securing        // the connection to the target
	waiting         // for the response: the request has left, or parts of it
	receiving       // the body of the response
)

func newAttempt(n *round, l lease.Lease) *attempt {
	a := &attempt{
		t: n.t, request: n.request, proxy: l.Proxy, target: n.target, number: len(n.tried) + 1, held: n.t.hold(n.request, l),
	}
	ctx, cancel := context.WithCancelCause(n.request.Context())
	a.cancel = cancel
	a.clock = time.AfterFunc(n.t.cfg.Timeout, func() { cancel(silence{n.t.cfg.Timeout}) })
	a.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() {
			if a.proxy.Scheme == "socks5" { // else the first one is with the proxy, and tunnelled says when it is over
				a.reach(securing)
			}
		},
		GotConn: func(httptrace.GotConnInfo) { a.reach(waiting) },
	})
	return a
}

// reach notes how far the attempt has come.
func (a *attempt) reach(stage int32) {
	for now := a.stage.Load(); now < stage && !a.stage.CompareAndSwap(now, stage); now = a.stage.Load() {
	}
}

// sent says whether the target may have seen the request.
func (a *attempt) sent() bool { return a.stage.Load() >= waiting }

// make sends the request with a body. What came back is a response or an *Error. It has been reported, and the lease has ended
// unless there is more of the body to read.
func (a *attempt) make(body io.ReadCloser) (*http.Response, Verdict, error) {
	done := a.held.use()
	resp, head, err := a.exchange(body)
	done()
	more := err == nil && resp.Body != nil
	v := a.t.cfg.Classify(resp, head, err)
	switch {
	case err != nil:
		a.t.cfg.Logger.Debug("An attempt failed", "proxy", nameOf(a.proxy), "target", a.target, "error", err)
		a.end(v.Outcome)
		return nil, v, err
	case !more:
		a.end(v.Outcome)
		resp.Body = whole(head)
	case v.Outcome == lease.OK: // as long as it does not break off
		resp.Body = a.rest(head, resp.Body, lease.OK)
	default:
		a.held.report(v.Outcome)
		resp.Body = a.rest(head, resp.Body, "")
	}
	return resp, v, nil
}

// exchange sends the request, and returns the response with the first bytes of its body. The response has no Body if those
// are all.
func (a *attempt) exchange(body io.ReadCloser) (*http.Response, []byte, error) {
	sent := a.request.WithContext(a.ctx)
	sent.Body = body
	if body != nil && body != http.NoBody {
		a.body = &sending{ReadCloser: body}
		sent.Body = a.body
		// net/http waits for a read of the body that is under way, whatever happens: closing it ends the read.
		context.AfterFunc(a.ctx, func() { _ = a.body.Close() })
	}
	resp, err := a.transport().RoundTrip(sent)
	a.clock.Stop()
	if err == nil {
		err = a.refused(resp)
	}
	if err != nil {
		return nil, nil, a.blame(err)
	}
	resp.Request = a.request.WithContext(context.WithValue(a.request.Context(), servedKey{}, nameOf(a.proxy)))
	a.reach(receiving)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, nil, nil
	}
	head, err := io.ReadAll(io.LimitReader(&paced{a, resp.Body}, int64(a.t.cfg.Buffer)))
	if err != nil {
		return nil, nil, a.blame(err)
	}
	if len(head) < a.t.cfg.Buffer || resp.Body == http.NoBody {
		_ = resp.Body.Close()
		resp.Body = nil
	}
	return resp, head, nil
}

// transport makes what connects to the proxy. Nobody else gets it, so that no connection outlives the lease and no two leases
// have anything in common that a target could see.
func (a *attempt) transport() *http.Transport {
	tr := a.t.cfg.Base.Clone()
	tr.Proxy = http.ProxyURL(a.proxy.RevealURL())
	dial := tr.DialContext
	tr.DialContext = func(_ context.Context, network, address string) (net.Conn, error) {
		a.reach(dialling)
		c, err := dial(a.ctx, network, address) // not with the context of net/http, which may outlive the attempt
		if err != nil {
			return nil, err
		}
		a.reach(asking)
		return c, a.links.add(c)
	}
	further := tr.OnProxyConnectResponse
	tr.OnProxyConnectResponse = func(ctx context.Context, proxyURL *url.URL, req *http.Request, resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return &refusal{resp.StatusCode, resp.Status}
		}
		if further != nil {
			if err := further(ctx, proxyURL, req, resp); err != nil {
				return err
			}
		}
		a.reach(securing)
		return nil
	}
	if tr.TLSClientConfig == nil {
		tr.TLSClientConfig = &tls.Config{}
	}
	tr.TLSClientConfig.ClientSessionCache = nil // a resumed session would tie two proxies together
	return tr
}

// relayed says whether the proxy reads the request, and answers for a target that it cannot reach.
func (a *attempt) relayed() bool { return a.request.URL.Scheme == "http" && a.proxy.Scheme != "socks5" }

// refused returns an error for a response that comes from the proxy and not from the target, as far as proxies say so.
func (a *attempt) refused(resp *http.Response) error {
	if !a.relayed() {
		return nil
	}
	if resp.StatusCode == http.StatusProxyAuthRequired || saysError(resp) {
		_ = resp.Body.Close()
		return &refusal{resp.StatusCode, resp.Status}
	}
	return nil
}

// end closes the connections and gives the lease back. Only the first call counts.
func (a *attempt) end(o lease.Outcome) {
	a.finish.Do(func() {
		a.clock.Stop()
		a.cancel(net.ErrClosed)
		a.links.close()
		a.held.end(o)
	})
}

// blame says who failed.
func (a *attempt) blame(err error) *Error {
	by, doing := a.culprit(err)
	e := &Error{By: by, Doing: doing, Proxy: nameOf(a.proxy), Target: a.target, Attempts: a.number, Err: err}
	if r, ok := errors.AsType[*refusal](err); ok {
		e.Status = r.status
	}
	if cause, silent := errors.AsType[silence](context.Cause(a.ctx)); silent {
		e.Err = cause
	}
	return e
}

func (a *attempt) culprit(err error) (Party, string) {
	if a.request.Context().Err() != nil {
		return Client, "giving up"
	}
	if a.body != nil && a.body.broken.Load() {
		return Client, "reading the body of the request"
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.by(), "asking the proxy for the target"
	}
	switch a.stage.Load() {
	case preparing:
		return Client, "preparing the request"
	case dialling:
		return Proxy, "connecting to the proxy"
	case asking:
		return Proxy, "asking the proxy for the target"
	case securing:
		return Target, "securing the connection"
	case waiting:
		if a.relayed() && !timedOut(err) && !timedOut(context.Cause(a.ctx)) {
			return Proxy, "waiting for the response" // it would answer for a target that hangs up
		}
		return Target, "waiting for the response"
	}
	return Target, "reading the body"
}
