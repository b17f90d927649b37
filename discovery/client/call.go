package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	callTimeout = 30 * time.Second
	// maxAnswer bounds what is read of an answer, in bytes: a page of proxies that have all the attributes that they may
	// have is a third of it.
	maxAnswer = 16 << 20
	// attempts is how often a call is made whose answer is lost, and firstRetry the wait before the second one.
	attempts   = 3
	firstRetry = 100 * time.Millisecond
)

// call is one request of the API.
type call struct {
	method string
	path   string // escaped
	query  url.Values
	body   any           // sent as JSON; nil is none
	into   any           // gets the answer, which is JSON; nil is not interested
	wait   time.Duration // how much longer than others it may take
	once   bool          // it is not made again when its answer is lost
	hasty  bool          // it is not made again when the server is not ready, for its maker sees to that
}

// do makes a call and reads its answer. It asks again when the answer was lost, unless that would do something twice, and when
// the server says that it is not ready, after the time that it names: for as long as a call may take, for that may be while one
// replica takes over from another.
func (c *Client) do(ctx context.Context, k call) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+k.wait)
	defer cancel()
	lost, wait := 0, firstRetry
	for {
		answer, err := c.once(ctx, k)
		if err == nil {
			return k.read(answer)
		}
		pause, again := wait, !k.once
		if answered, ok := errors.AsType[*APIError](err); ok {
			pause, again = answered.RetryAfter, again && !k.hasty && answered.notReady()
		} else {
			lost, wait = lost+1, 3*wait
		}
		if !again || lost == attempts || !sleep(ctx, pause) {
			return err
		}
	}
}

// sleep waits for a time, and says whether it did: it does not begin what the context cannot outlast.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// read decodes an answer.
func (k call) read(answer []byte) error {
	if k.into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, k.into); err != nil {
		// What was wrong is not quoted: it may hold a password.
		return errors.New("the answer is not what the API promises")
	}
	return nil
}

// once sends a call and returns the body of its answer.
func (c *Client) once(ctx context.Context, k call) ([]byte, error) {
	resp, err := c.send(ctx, k)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	// What is longer is cut off, and then no JSON any more.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, apiError(resp, body)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the answer broke off: %w", c.cfg.BaseURL, err)
	}
	return body, nil
}

// send sends a call. The caller closes the body of the response.
func (c *Client) send(ctx context.Context, k call) (*http.Response, error) {
	req, err := c.request(ctx, k)
	if err != nil {
		return nil, err
	}
	resp, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // the URL names the lease
		}
		return nil, fmt.Errorf("%s: %w", c.cfg.BaseURL, err)
	}
	return resp, nil
}

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	target := c.cfg.BaseURL + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	var body io.Reader
	if k.body != nil {
		text, err := json.Marshal(k.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	c.authorize(req)
	return req, nil
}

func (c *Client) authorize(req *http.Request) {
	if !c.cfg.Token.IsZero() {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token.Reveal())
	}
}

// segment escapes a part of a path. A part of dots alone would otherwise be taken for a step up.
func segment(s string) string {
	switch s {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(s)
}
