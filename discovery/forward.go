package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/proxyfleet/fleet/discovery/internal/wire"
)

const (
	// leaderPatience is how long the leader may take for what it answers at once, and pagePatience for a page, of which this
	// replica has one too. What waits or asks providers may take so much longer.
	leaderPatience = 15 * time.Second
	pagePatience   = 3 * time.Second
	// leaderRetry is how long a caller waits for whom there was no leader.
	leaderRetry = 2 * time.Second
	// forwardedHeader marks a request that comes from another replica, and says of which fleet.
	forwardedHeader = "Proxyfleet-Forwarded"
)

// led serves what only the process that leads knows: by itself, or else by asking the one that does.
func (a *api) led(longer time.Duration, serve endpoint) endpoint {
	if a.Leader == nil {
		return a.meant(serve)
	}
	return func(w http.ResponseWriter, r *http.Request) error { return a.forward(w, r, leaderPatience+longer) }
}

// ledPage shows a page as the leader has it, who knows more. Where it does not answer, this replica shows what it knows.
func (a *api) ledPage(serve endpoint) endpoint {
	if a.Leader == nil {
		return a.meant(serve)
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		if a.forward(w, r, pagePatience) == nil {
			return nil
		}
		w.Header().Del("Retry-After") // there is an answer
		return serve(w, r)
	}
}

// meant refuses what a replica of another fleet forwards, which takes this one for its leader: their Leases have the same name, or
// this one has the address that its leader had.
func (a *api) meant(serve endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		if from := r.Header.Get(forwardedHeader); from != "" && from != a.sender() {
			return noLeader(w, errors.New("the replica that this was forwarded to keeps another fleet"))
		}
		return serve(w, r)
	}
}

// sender is the fleet as a header can carry it.
func (a *api) sender() string { return strconv.QuoteToASCII(a.Name) }

// forward has the leader answer a request. If it returns an error, nothing was written.
func (a *api) forward(w http.ResponseWriter, r *http.Request, patience time.Duration) error {
	leader, err := a.leaderFor(r)
	if err != nil {
		return noLeader(w, err)
	}
	body, err := bodyOf(r)
	if err != nil {
		return err
	}
	patience += waitOf(body)
	// Where the connection has no deadlines, as in tests, none needs to be moved.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience + answerTimeout))
	running, stop := a.whileRunning(r.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(running, patience)
	defer cancel()
	err = a.carry(w, r.Clone(ctx), leader, body)
	switch {
	case err == nil, r.Context().Err() != nil:
		return err
	case errors.Is(context.Cause(running), errEnding):
		setRetryAfter(w, notReadyRetry)
		return errEnding
	}
	a.Logger.DebugContext(ctx, "the leader has not answered", "leader", leader.Host, "route", routeName(r.Pattern), "err", err)
	return noLeader(w, errors.New("the replica that leads has not answered, and may have done what it was asked for"))
}

// leaderFor returns where the leader is whom a request is forwarded to, or why it is not.
func (a *api) leaderFor(r *http.Request) (*url.URL, error) {
	if r.Header.Get(forwardedHeader) != "" {
		return nil, errors.New("the replica that this was forwarded to does not lead")
	}
	text := a.Leader()
	if text == "" {
		return nil, errors.New("no replica leads at the moment")
	}
	leader, err := url.Parse(text)
	if err != nil || leader.Host == "" {
		return nil, errors.New("the replica that leads does not say where it is")
	}
	return leader, nil
}

// noLeader is the answer to a request that nobody answers at the moment. The next leader may.
func noLeader(w http.ResponseWriter, why error) error {
	setRetryAfter(w, leaderRetry)
	return &problem{http.StatusServiceUnavailable, wire.NotReady, why.Error()}
}

// waitOf returns how long a request for a lease is ready to wait.
func waitOf(body []byte) time.Duration {
	var asked struct {
		WaitSeconds int64 `json:"waitSeconds"`
	}
	_ = json.Unmarshal(body, &asked) // the leader says what is wrong with it
	return time.Duration(min(max(asked.WaitSeconds, 0), maxWait)) * time.Second
}

// carry takes a request to the leader and the answer back. Host and Authorization stay as they came, for the leader judges
// by them. An error is from before the first byte of the answer.
func (a *api) carry(w http.ResponseWriter, r *http.Request, leader *url.URL, body []byte) error {
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	var failure error
	proxy := httputil.ReverseProxy{
		Transport: a.Transport,
		ErrorLog:  slog.NewLogLogger(a.Logger.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(leader)
			p.Out.Host, p.Out.URL.RawQuery = p.In.Host, p.In.URL.RawQuery
			p.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
			p.Out.Header.Del("Expect")
			p.Out.Header.Set(forwardedHeader, a.sender())
			propagation.TraceContext{}.Inject(p.Out.Context(), propagation.HeaderCarrier(p.Out.Header))
		},
		ModifyResponse: func(answer *http.Response) error {
			for name := range w.Header() { // this replica has set the same
				answer.Header.Del(name)
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failure = fmt.Errorf("forward: %w", err) },
	}
	proxy.ServeHTTP(w, r)
	return failure
}
