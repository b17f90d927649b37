package leasehttp

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/proxyfleet/fleet/lease"
)

// Classifier says what an attempt came to. It gets a response and the first bytes of its body, as many as [Config.Buffer]
// lets be read and as they came from the target, or else the error, which is an [*Error]. It must not use the response's Body,
// and may be called by many goroutines at once.
type Classifier func(resp *http.Response, body []byte, err error) Verdict

// Verdict is what a [Classifier] says.
type Verdict struct {
	// Outcome is what is reported to the store. Nothing is reported if it is empty.
	Outcome lease.Outcome
	// Retry says that another proxy may do better.
	Retry bool
}

// Signs are what a site shows to those whom it has banned, beside status 403.
type Signs struct {
	// Statuses are those that mean a ban.
	Statuses []int
	// Texts are found in the body of a ban, such as the name of a form to prove that one is human.
	Texts []string
}

// Classify is a [Classifier].
//
//   - a failure of the proxy is [lease.Failed], a failure of the target is not reported, and both are worth another proxy;
//     a failure of the client is neither;
//   - status 403 and the signs are [lease.Banned], 429 is [lease.RateLimited], and both are worth another proxy;
//   - 502, 503 and 504 are not reported, because they may come from the proxy, and are worth another one; nor are others from
//     500 on, which are not;
//   - everything else is [lease.OK].
func (s Signs) Classify(resp *http.Response, body []byte, err error) Verdict {
	if err != nil {
		failure, _ := errors.AsType[*Error](err)
		switch {
		case failure == nil || failure.By == Client:
			return Verdict{}
		case failure.By == Proxy:
			return Verdict{lease.Failed, true}
		}
		return Verdict{Retry: true}
	}
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		return Verdict{lease.RateLimited, true}
	case code == http.StatusForbidden, slices.Contains(s.Statuses, code), s.in(resp, body):
		return Verdict{lease.Banned, true}
	case code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return Verdict{Retry: true}
	case code >= 500:
		return Verdict{}
	}
	return Verdict{Outcome: lease.OK}
}

// longestText bounds what is unpacked of a body to look for texts, in bytes.
const longestText = 1 << 20

// in says whether one of the texts is in the body. Whoever asks for gzip by themselves gets it packed.
func (s Signs) in(resp *http.Response, body []byte) bool {
	if len(s.Texts) == 0 {
		return false
	}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if unpacked, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, _ = io.ReadAll(io.LimitReader(unpacked, longestText)) // as much as is there
		}
	}
	return slices.ContainsFunc(s.Texts, func(text string) bool { return bytes.Contains(body, []byte(text)) })
}
