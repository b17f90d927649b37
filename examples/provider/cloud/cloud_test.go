package cloud_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/examples/provider/cloud"
	"github.com/proxyfleet/fleet/examples/provider/cloud/cloudtest"
)

// patience is how long a test waits for what has to come.
const patience = 20 * time.Second

// caller calls a cloud for a test.
type caller struct {
	testing.TB
	url string
}

// answer has the fields of all answers.
type answer struct {
	status     int
	retryAfter string

	ID, State, Host, Code, Message, NextPageToken string
	Port                                          int
	Labels                                        map[string]string
	Instances                                     []answer
	Operations                                    []struct {
		InstanceID, Error string
		Done              bool
	}
}

func start(t testing.TB, config cloud.Config) (*cloud.Cloud, caller) {
	t.Helper()
	config.Boot = cmp.Or(config.Boot, time.Millisecond)
	config.Stop = cmp.Or(config.Stop, time.Millisecond)
	c, url := cloudtest.Start(t, config)
	return c, caller{t, url}
}

// try makes a call, which may be lost. It is canceled with ctx.
func (c caller) try(ctx context.Context, method, path, match, body string) (answer, error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	if match != "" {
		r.Header.Set("If-Match", match)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	a := answer{status: response.StatusCode, retryAfter: response.Header.Get("Retry-After")}
	if a.status != http.StatusNoContent {
		err = json.NewDecoder(response.Body).Decode(&a)
	}
	return a, err
}

// call makes a call that is answered.
func (c caller) call(method, path, body string) answer {
	c.Helper()
	a, err := c.try(c.Context(), method, path, "", body)
	if err != nil {
		c.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// want makes a call that is answered with a status.
func (c caller) want(status int, method, path, body string) answer {
	c.Helper()
	a := c.call(method, path, body)
	if a.status != status {
		c.Fatalf("%s %s answered %d %s %s, want %d", method, path, a.status, a.Code, a.Message, status)
	}
	return a
}

const (
	zoneA = "/v1/zones/a/instances"
	oneA  = zoneA + "/one"
)

// one is the body of a create of the instance one.
const one = `{"name": "one", "requestID": "r1", "labels": {"owner": "me"}}`

// await polls until an answer is as it is to be.
func (c caller) await(path string, is func(answer) bool) answer {
	c.Helper()
	deadline := time.After(patience)
	for {
		a := c.call(http.MethodGet, path, "")
		if is(a) {
			return a
		}
		select {
		case <-deadline:
			c.Fatalf("GET %s still answers %+v", path, a)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func gone(a answer) bool { return a.Code == "instance_not_found" }

func in(s cloud.State) func(answer) bool { return func(a answer) bool { return a.State == string(s) } }

// running waits until an instance runs and its proxy listens.
func (c caller) running(path string) answer {
	c.Helper()
	a := c.await(path, in(cloud.Running))
	deadline := time.After(patience)
	for !listens(a) {
		select {
		case <-deadline:
			c.Fatalf("nothing listens on %s", a.address())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return a
}

func (a answer) address() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

func listens(a answer) bool {
	conn, err := net.DialTimeout("tcp", a.address(), patience)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// deaf waits until nothing listens where an instance was.
func (c caller) deaf(a answer) {
	c.Helper()
	for deadline := time.After(patience); listens(a); {
		select {
		case <-deadline:
			c.Fatalf("something still listens on %s", a.address())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestLifecycle(t *testing.T) {
	dir := t.TempDir()
	_, c := start(t, cloud.Config{Dir: dir})
	made := c.want(200, http.MethodPost, zoneA, one)
	if made.State != "PROVISIONING" || made.Port != 0 || made.Labels["owner"] != "me" {
		t.Errorf("a new instance is %+v, want it PROVISIONING with its labels and no address yet", made)
	}
	up := c.running(oneA)
	if up.ID != made.ID || up.Host != "127.0.0.1" {
		t.Errorf("the instance runs as %+v, want the id %s on 127.0.0.1", up, made.ID)
	}
	c.want(204, http.MethodDelete, oneA, "")
	c.await(oneA, gone)
	c.deaf(up)
	c.want(404, http.MethodDelete, oneA, "")
	if left, _ := filepath.Glob(filepath.Join(dir, made.ID+"*")); len(left) > 0 {
		t.Errorf("the instance left %v", left)
	}
}

func TestStopping(t *testing.T) {
	_, c := start(t, cloud.Config{Stop: time.Hour})
	c.want(200, http.MethodPost, zoneA, one)
	up := c.running(oneA)
	for range 2 {
		c.want(204, http.MethodDelete, oneA, "")
		if a := c.want(200, http.MethodGet, oneA, ""); a.State != "STOPPING" || a.ID != up.ID {
			t.Errorf("a deleted instance is %+v, want %s STOPPING", a, up.ID)
		}
	}
	c.deaf(up)
	c.want(409, http.MethodPost, zoneA, `{"name": "one", "requestID": "r2"}`)
}

func TestProxy(t *testing.T) {
	dir := t.TempDir()
	_, c := start(t, cloud.Config{Dir: dir})
	c.want(200, http.MethodPost, zoneA, `{"name": "one", "username": "crawler", "password": "Open.Sesame-1"}`)
	address := c.running(oneA).address()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	tests := []struct {
		name   string
		user   *url.Userinfo
		target string
		want   string
	}{
		{"http", url.UserPassword("crawler", "Open.Sesame-1"), plain.URL, "418"},
		{"CONNECT", url.UserPassword("crawler", "Open.Sesame-1"), secure.URL, "418"},
		{"without credentials", nil, plain.URL, "407"},
		{"with wrong ones", url.UserPassword("crawler", "wrong"), plain.URL, "401"},
		{"to elsewhere", url.UserPassword("crawler", "Open.Sesame-1"), "http://192.0.2.1/", "403"},
		{"to what begins like loopback", url.UserPassword("crawler", "Open.Sesame-1"), "http://127.0.0.1.example.com/", "403"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transport := secure.Client().Transport.(*http.Transport).Clone()
			defer transport.CloseIdleConnections()
			transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", User: tt.user, Host: address})
			client := http.Client{Transport: transport, Timeout: patience}
			response, err := client.Get(tt.target)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if got := strconv.Itoa(response.StatusCode); got != tt.want {
				t.Errorf("the answer is %s, want %s", got, tt.want)
			}
		})
	}
	assertPrivate(t, dir)
}

// assertPrivate says that nobody else can read the files of a cloud, and that its state has no password.
func assertPrivate(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v, want it for its owner alone", entry.Name(), info.Mode(), err)
		}
	}
	state, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil || bytes.Contains(state, []byte("Sesame")) {
		t.Errorf("the state is %s, %v, want it without the password", state, err)
	}
}

func TestCreateRefuses(t *testing.T) {
	c, call := start(t, cloud.Config{})
	tests := map[string]string{
		"no name":                   `{}`,
		"a path as name":            `{"name": "../x"}`,
		"a line in the password":    `{"name": "one", "username": "u", "password": "p\nAllow 0.0.0.0/0"}`,
		"a blank in the user":       `{"name": "one", "username": "u v", "password": "p"}`,
		"a user without a password": `{"name": "one", "username": "u"}`,
		"a label with blanks":       `{"name": "one", "labels": {"a": "b c"}}`,
		"an unknown field":          `{"name": "one", "size": 3}`,
		"two documents":             `{"name": "one"} {}`,
		"no JSON":                   `name: one`,
		"too much":                  `{"name": "` + strings.Repeat("x", 1<<20) + `"}`,
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) { caller{t, call.url}.want(400, http.MethodPost, zoneA, body) })
	}
	call.want(404, http.MethodPost, "/v1/zones/c/instances", one)
	if h := c.History(); len(h) != 0 {
		t.Errorf("there is %+v, want nothing", h)
	}
}

func TestNamesAreUniqueAndRequestsAreIdempotent(t *testing.T) {
	c, call := start(t, cloud.Config{})
	first := call.want(200, http.MethodPost, zoneA, one)
	if again := call.want(200, http.MethodPost, zoneA, one); again.ID != first.ID {
		t.Errorf("a repeated request made %s, want %s", again.ID, first.ID)
	}
	call.want(409, http.MethodPost, zoneA, `{"name": "one", "requestID": "r2"}`)
	call.want(200, http.MethodPost, "/v1/zones/b/instances", `{"name": "one", "requestID": "r3"}`)
	call.want(204, http.MethodDelete, oneA, "")
	call.await(oneA, gone)
	if again := call.want(200, http.MethodPost, zoneA, one); again.ID != first.ID || again.State != "GONE" {
		t.Errorf("a repeated request is answered by %+v, want %s, which is GONE", again, first.ID)
	}
	if next := call.want(200, http.MethodPost, zoneA, `{"name": "one"}`); next.ID <= first.ID {
		t.Errorf("the successor of %s has the id %s", first.ID, next.ID)
	}
	if h := c.History(); len(h) != 3 || h[0].Ended.IsZero() || !h[2].Ended.IsZero() {
		t.Errorf("the history is %+v, want three, the first of which has ended", h)
	}
}

func TestDeleteHitsTheInstanceThatIsMeant(t *testing.T) {
	_, c := start(t, cloud.Config{})
	made := c.want(200, http.MethodPost, zoneA, one)
	for _, tt := range []struct {
		match string
		want  int
	}{{`"17"`, 412}, {made.ID, 412}, {`"` + made.ID + `"`, 204}} {
		if a, err := c.try(t.Context(), http.MethodDelete, oneA, tt.match, ""); err != nil || a.status != tt.want {
			t.Errorf("a delete of %s is answered with %d, %v, want %d", tt.match, a.status, err, tt.want)
		}
	}
}

func TestListHasPages(t *testing.T) {
	_, c := start(t, cloud.Config{PageSize: 2})
	var want []string
	for n := range 5 {
		want = append(want, c.want(200, http.MethodPost, zoneA, fmt.Sprintf(`{"name": "i%d", "labels": {"owner": "me"}}`, n)).ID)
	}
	c.want(200, http.MethodPost, zoneA, `{"name": "other", "labels": {"owner": "you"}}`)
	c.want(200, http.MethodPost, "/v1/zones/b/instances", `{"name": "elsewhere", "labels": {"owner": "me"}}`)
	var got []string
	for token := "0"; token != ""; {
		page := c.want(200, http.MethodGet, zoneA+"?label=owner%3Dme&pageToken="+token, "")
		for _, i := range page.Instances {
			got = append(got, i.ID)
		}
		token = page.NextPageToken
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("all pages (-want +got):\n%s", diff)
	}
	c.want(400, http.MethodGet, zoneA+"?pageToken=x", "")
	c.want(400, http.MethodGet, zoneA+"?label=owner", "")
}

func TestTheNextCloudTakesOver(t *testing.T) {
	dir := t.TempDir()
	first, before := start(t, cloud.Config{Dir: dir})
	for _, name := range []string{"one", "two", "three"} {
		before.want(200, http.MethodPost, zoneA, fmt.Sprintf(`{"name": %q, "requestID": %q}`, name, name))
	}
	one, two := before.running(oneA), before.running(zoneA+"/two")
	before.running(zoneA + "/three")
	if err := first.Kill("a", "three"); err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.Open(cloud.Config{Dir: dir}); err == nil {
		t.Fatal("a second cloud opened a directory that is in use")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	before.want(503, http.MethodGet, oneA, "")
	before.want(503, http.MethodDelete, oneA, "")

	_, after := start(t, cloud.Config{Dir: dir})
	for path, was := range map[string]answer{oneA: one, zoneA + "/two": two} {
		if diff := gocmp.Diff(was, after.running(path), gocmp.AllowUnexported(answer{})); diff != "" {
			t.Errorf("%s after the restart (-was +is):\n%s", path, diff)
		}
	}
	if a := after.want(200, http.MethodGet, zoneA+"/three", ""); a.State != "STOPPED" {
		t.Errorf("an instance without a process is %s, want STOPPED", a.State)
	}
	if a := after.want(200, http.MethodPost, zoneA, `{"name": "one", "requestID": "one"}`); a.ID != one.ID {
		t.Errorf("a request of before made %s, want %s", a.ID, one.ID)
	}
	after.want(204, http.MethodDelete, oneA, "")
	after.deaf(one)
	if !listens(two) {
		t.Error("the deletion of one instance ended another")
	}
}

func TestTheNextCloudEndsWhatNobodyKnows(t *testing.T) {
	dir := t.TempDir()
	first, c := start(t, cloud.Config{Dir: dir})
	c.want(200, http.MethodPost, zoneA, one)
	lost := c.running(oneA)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "state.json")); err != nil {
		t.Fatal(err)
	}
	_, next := start(t, cloud.Config{Dir: dir})
	next.deaf(lost)
	if a := next.want(200, http.MethodPost, zoneA, one); a.ID <= lost.ID {
		t.Errorf("a cloud that lost its state gave the id %s after %s", a.ID, lost.ID)
	}
}

func TestOpenRefuses(t *testing.T) {
	cloudtest.NeedTinyproxy(t)
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "state.json"), []byte(`{"instances": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		config cloud.Config
		want   string
	}{
		"no directory":   {cloud.Config{}, "dir is required"},
		"broken state":   {cloud.Config{Dir: broken}, "state.json"},
		"a strange zone": {cloud.Config{Dir: broken, Zones: []string{"a/b"}}, `zone "a/b"`},
		"all at once": {
			cloud.Config{Boot: -1, PageSize: -1, Conditions: cloud.Conditions{Probability: 2, LagMillis: -1, Faults: []cloud.Fault{{Op: "x"}}}},
			"dir is required\nboot and stop must not be negative\npage size must not be negative\n" +
				"lag and capacity must not be negative\nprobability must be from 0 to 1\nop \"x\"",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := cloud.Open(tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestPurgeLeavesNothing(t *testing.T) {
	_, c := start(t, cloud.Config{})
	c.want(200, http.MethodPost, zoneA, one)
	up := c.running(oneA)
	c.want(204, http.MethodDelete, "/admin/all", "")
	c.deaf(up)
	c.want(404, http.MethodGet, oneA, "")
	if h := c.want(200, http.MethodGet, "/admin/history", ""); len(h.Instances) != 1 || h.Instances[0].ID != up.ID {
		t.Errorf("the history is %+v, want the one that was", h)
	}
}
