package gcp_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/gcp"
	"github.com/proxyfleet/fleet/provider/gcp/gcptest"
)

// inMemory hands requests to a cloud without a network, so that hours pass at once. As a real transport does, it sends nothing
// for who has gone.
type inMemory struct{ cloud http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer func() {
		if recover() != nil { // a handler that closes the connection
			err = io.ErrUnexpectedEOF
		}
	}()
	w := httptest.NewRecorder()
	m.cloud.ServeHTTP(w, r)
	return w.Result(), nil
}

// bubble opens a provider with the delays of Compute Engine, over a cloud without a network.
func bubble(t *testing.T, c gcptest.Config) (*gcptest.Server, provider.Provider) {
	t.Helper()
	cloud := gcptest.New(c)
	p := open(t, "f", "http://cloud", map[string]any{"settle": "5m"})
	gcp.Over(p, inMemory{cloud})
	return cloud, p
}

// readQuota is what a project may read in a minute by default.
const readQuota = 1500

// How many requests a fleet that runs sends: each proxy is looked at every minute, the project is checked every minute, and
// everything is listed every ten minutes.
func TestRequestsOfAFleetThatRuns(t *testing.T) {
	const hour = 60 // minutes
	for _, tt := range []struct{ proxies, minutes, most int }{{10, hour, 240}, {100, hour, 240}, {1000, 10, 400}} {
		t.Run(fmt.Sprint(tt.proxies), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, p := bubble(t, gcptest.Config{})
				var all []provider.Ref
				for n := range tt.proxies {
					r := named("us-central1-a", fmt.Sprint("u", n))
					plant(cloud, r)
					all = append(all, ref(r))
				}
				busiest, before := 0, 0
				for minute := range tt.minutes {
					for _, where := range all {
						time.Sleep(time.Minute / time.Duration(len(all)))
						if in, err := p.Get(t.Context(), where); err != nil || in.State != provider.Running {
							t.Fatalf("Get returned %+v, %v", in, err)
						}
					}
					p.(provider.Checker).Check(t.Context())
					if minute%10 == 9 {
						if _, err := p.List(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					now := total(cloud)
					busiest, before = max(busiest, now-before), now
				}
				hourly := total(cloud) * hour / tt.minutes
				t.Logf("%d proxies: %d requests an hour, %.2f for each proxy; %d in the busiest minute; %v", tt.proxies, hourly,
					float64(hourly)/float64(tt.proxies), busiest, cloud.Requests())
				if hourly > tt.most {
					t.Errorf("%d requests an hour, want %d at most", hourly, tt.most)
				}
				if busiest > readQuota/10 {
					t.Errorf("%d requests in a minute, want a tenth of the quota of %d at most", busiest, readQuota)
				}
			})
		})
	}
}

func total(cloud *gcptest.Server) int {
	n := 0
	for _, count := range cloud.Requests() {
		n += count
	}
	return n
}

// While many machines boot at once they are polled every five seconds, and still do not use up the quota.
func TestRequestsOfAFleetThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 300
		cloud, p := bubble(t, gcptest.Config{Boot: time.Minute, Insert: 20 * time.Second})
		waiting := map[string]provider.Ref{}
		for n := range count {
			r := named("us-central1-a", fmt.Sprint("u", n))
			mustCreate(t, p, r)
			waiting[r.Name] = ref(r)
		}
		started := time.Now()
		for len(waiting) > 0 {
			time.Sleep(5 * time.Second)
			for name, where := range maps.Clone(waiting) {
				if in, err := p.Get(t.Context(), where); err != nil {
					t.Fatal(err)
				} else if in.State == provider.Running {
					delete(waiting, name)
				}
			}
		}
		reads := total(cloud) - cloud.Requests()["instances.insert"]
		t.Logf("%d machines ran after %v and %d reads: %v", count, time.Since(started), reads, cloud.Requests())
		if reads > 200 {
			t.Errorf("%d reads, want 200 at most", reads)
		}
		if late := time.Since(started); late > 75*time.Second {
			t.Errorf("the last was seen to run after %v, want a poll or two after a minute", late)
		}
	})
}

// A list answers for what runs for half a minute, for what changes for five seconds, and never for what is not there.
func TestHowOldAnAnswerMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := bubble(t, gcptest.Config{})
		var all []provider.Request
		for n := range 10 {
			r := named("us-central1-a", fmt.Sprint("u", n))
			plant(cloud, r)
			all = append(all, r)
		}
		state := func(r provider.Request) provider.State {
			in, err := p.Get(t.Context(), ref(r))
			if err != nil {
				t.Fatal(err)
			}
			return in.State
		}
		for _, r := range all {
			state(r)
		}
		cloud.Preempt("us-central1-a", all[0].Name)
		time.Sleep(29 * time.Second)
		if got := state(all[0]); got != provider.Running {
			t.Errorf("after 29 s it is %s, want Running as the list has it", got)
		}
		time.Sleep(2 * time.Second)
		if got := state(all[0]); got != provider.Stopped {
			t.Errorf("after 31 s it is %s, want Stopped", got)
		}
		for _, r := range all[1:7] {
			cloud.Preempt("us-central1-a", r.Name)
		}
		time.Sleep(31 * time.Second)
		for _, r := range all[1:7] {
			state(r)
		}
		before := cloud.Requests()
		time.Sleep(5*time.Second + time.Millisecond)
		for _, r := range all[1:7] {
			state(r)
		}
		now := cloud.Requests()
		if direct, lists := now["instances.get"]-before["instances.get"], now["instances.aggregatedList"]-before["instances.aggregatedList"]; direct > 4 || lists != 1 {
			t.Errorf("six machines that change took %d direct requests and %d lists in one poll, want at most 4 and one", direct, lists)
		}
		cloud.Vanish("us-central1-a", all[8].Name)
		time.Sleep(31 * time.Second)
		if _, err := p.Get(t.Context(), ref(all[8])); provider.ClassOf(err) != provider.ErrNotFound {
			t.Errorf("Get returned %v, want NotFound", err)
		}
		plant(cloud, all[8]) // somebody else makes it: the list is too young to have it
		if in, err := p.Get(t.Context(), ref(all[8])); err != nil || in.State != provider.Running {
			t.Errorf("Get returned %+v, %v: what a list does not have may be there", in, err)
		}
	})
}

// A list that fails does not keep anybody from asking directly, and is not tried at every call.
func TestWithoutTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := bubble(t, gcptest.Config{})
		r := named("us-central1-a", "u")
		plant(cloud, r)
		cloud.Inject(gcptest.Fault{Method: "instances.aggregatedList", Status: 403, Times: 1000})
		for range 10 {
			if in, err := p.Get(t.Context(), ref(r)); err != nil || in.State != provider.Running {
				t.Errorf("Get returned %+v, %v", in, err)
			}
			time.Sleep(time.Second)
		}
		if n := cloud.Requests(); n["instances.aggregatedList"] != 1 || n["instances.get"] != 10 {
			t.Errorf("the requests are %v, want one list and ten direct ones", n)
		}
	})
}

// What the library may be told by its environment to print holds everything that is sent: it is not listened to.
func TestTheLibraryPrintsNothing(t *testing.T) {
	t.Setenv("GOOGLE_SDK_GO_LOGGING_LEVEL", "debug")
	printed := capture(t, func() {
		_, url := start(t, gcptest.Config{})
		p := open(t, "f", url, nil)
		r := named("us-central1-a", "u")
		mustCreate(t, p, r)
		if _, err := p.Get(t.Context(), ref(r)); err != nil {
			t.Error(err)
		}
		if _, err := p.List(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if strings.TrimSpace(printed) != "" {
		t.Errorf("the library printed %.200q", printed)
	}
}

// capture returns what is printed to stderr meanwhile.
func capture(t *testing.T, do func()) string {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	was := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = was }()
	do()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// One machine that boots among many that run is asked for directly: a list would be dearer.
func TestRequestsForOneThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := bubble(t, gcptest.Config{Boot: time.Minute, Insert: time.Minute})
		r := named("us-central1-a", "u")
		mustCreate(t, p, r)
		for range 11 {
			time.Sleep(5 * time.Second)
			if in, err := p.Get(t.Context(), ref(r)); err != nil || in.State != provider.Provisioning {
				t.Errorf("Get returned %+v, %v, want it on its way", in, err)
			}
		}
		if n := cloud.Requests(); n["instances.aggregatedList"] > 1 || n["zoneOperations.get"] != 11 {
			t.Errorf("the requests are %v, want one list at most, and the operation once a poll", n)
		}
	})
}

// A list that lags by a minute does not bring back what was deleted.
func TestALaggingListDoesNotRevive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := bubble(t, gcptest.Config{Stop: time.Hour})
		gcp.Over(p, inMemory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/aggregated/") {
				cloud.Lag(time.Minute)
				defer cloud.Lag(0)
			}
			cloud.ServeHTTP(w, r)
		})})
		r := named("us-central1-a", "u")
		plant(cloud, r)
		time.Sleep(2 * time.Minute)
		in, err := p.Get(t.Context(), ref(r))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Delete(t.Context(), provider.Ref{ID: in.ID, UID: "u", Incarnation: in.Incarnation}); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			time.Sleep(time.Second)
			if in, err := p.Get(t.Context(), ref(r)); err != nil || in.State != provider.Terminating {
				t.Errorf("Get returned %+v, %v, want it Terminating", in, err)
			}
		}
		if cloud.Requests()["instances.aggregatedList"] < 2 {
			t.Error("no list was read that could have misled it")
		}
	})
}

// While a list hangs for one caller, another's call still ends with its context.
func TestAListThatHangsHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := bubble(t, gcptest.Config{})
		gcp.Over(p, inMemory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/aggregated/") {
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}
			cloud.ServeHTTP(w, r)
		})})
		r, other := named("us-central1-a", "u"), named("us-central1-a", "v")
		plant(cloud, r)
		ended := make(chan error, 1)
		start := time.Now()
		go func() {
			_, err := p.Get(t.Context(), ref(r))
			ended <- err
		}()
		synctest.Wait()
		mustCreate(t, p, other)
		if err := p.Delete(t.Context(), ref(other)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Get(ctx, ref(named("us-central1-a", "w"))); provider.ClassOf(err) != provider.ErrTransient {
			t.Errorf("Get whose time ran out returned %v, want a transient error", err)
		}
		if waited := time.Since(start); waited > time.Second {
			t.Errorf("other calls took %v, want what their contexts allow", waited)
		}
		if err := <-ended; err != nil {
			t.Errorf("Get returned %v, want the answer to a direct request once the list has taken too long", err)
		}
	})
}

// What a list showed too long ago is not told, whatever keeps it from being read anew.
func TestAnOldListIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := bubble(t, gcptest.Config{})
		r := named("us-central1-a", "u")
		plant(cloud, r)
		if _, err := p.Get(t.Context(), ref(r)); err != nil {
			t.Fatal(err)
		}
		cloud.Vanish("us-central1-a", r.Name)
		time.Sleep(40 * time.Second)
		gcp.Hang(p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if in, err := p.Get(ctx, ref(r)); provider.ClassOf(err) != provider.ErrTransient {
			t.Errorf("Get returned %+v, %v, want a transient error", in, err)
		}
	})
}
