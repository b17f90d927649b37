package discovery_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/discovery"
	"github.com/proxyfleet/fleet/proxy"
)

// crowded is a store whose lists end when they may, and which notes how many are under way.
type crowded struct {
	proxy.Store
	may chan struct{} // closed: all

	mu        sync.Mutex
	now, most int
}

func (c *crowded) List(ctx context.Context) ([]*proxy.Proxy, error) {
	c.count(+1)
	defer c.count(-1)
	<-c.may
	return c.Store.List(ctx)
}

func (c *crowded) count(change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += change
	c.most = max(c.most, c.now)
}

// ask sends so many requests at once and returns where their answers will be.
func ask(t *testing.T, h http.Handler, targets ...string) (answers []*httptest.ResponseRecorder, all *sync.WaitGroup) {
	t.Helper()
	all = new(sync.WaitGroup)
	for _, target := range targets {
		w := httptest.NewRecorder()
		answers = append(answers, w)
		all.Go(func() { h.ServeHTTP(w, request(t, target, "")) })
	}
	return answers, all
}

// However many ask for lists, few are in memory at once; who waited in vain is told when to come back.
func TestListsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t)
		s := &crowded{Store: c.Proxies, may: make(chan struct{})}
		c.Proxies = s
		h := handler(t, c)
		first, firstAll := ask(t, h, "GET /v1/proxies", "GET /v1/proxies", "GET /", "GET /")
		synctest.Wait()
		second, secondAll := ask(t, h, "GET /v1/proxies", "GET /v1/proxies", "GET /")
		time.Sleep(9 * time.Second)
		third, thirdAll := ask(t, h, "GET /v1/proxies", "GET /")
		secondAll.Wait()
		for _, w := range second {
			if w.Code != 503 || w.Header().Get("Retry-After") != "5" {
				t.Errorf("one too many: %d, Retry-After %s: %s", w.Code, w.Header().Get("Retry-After"), w.Body)
			}
		}
		if diff := cmp.Diff(failure("busy", "too many others ask for the same at once"), plain(t, second[0].Body.String())); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		close(s.may)
		firstAll.Wait()
		thirdAll.Wait()
		for i, w := range append(first, third...) {
			if w.Code != 200 {
				t.Errorf("answer %d: %d %s", i, w.Code, w.Body)
			}
		}
		if s.most != 4 {
			t.Errorf("%d lists at once, want 4", s.most)
		}
	})
}

// unread is an answer that nobody reads.
type unread struct {
	http.ResponseWriter
	never chan struct{}
}

func (u unread) Write(b []byte) (int, error) {
	<-u.never
	return len(b), nil
}

// Who reads slowly keeps nobody else waiting.
func TestSlowReadersHaveNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler(t, config(t))
		never := make(chan struct{})
		defer close(never)
		for range 5 {
			for _, target := range []string{"GET /v1/proxies", "GET /"} {
				go h.ServeHTTP(unread{httptest.NewRecorder(), never}, request(t, target, ""))
			}
		}
		synctest.Wait()
		start := time.Now()
		if got := serve(t, h, request(t, "GET /v1/proxies", "")); got.Code != 200 || time.Since(start) > 0 {
			t.Errorf("status %d after %v", got.Code, time.Since(start))
		}
	})
}

// Who hangs up while he waits has no turn.
func TestATurnThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t)
		s := &crowded{Store: c.Proxies, may: make(chan struct{})}
		c.Proxies = s
		h := handler(t, c)
		_, all := ask(t, h, "GET /v1/proxies", "GET /v1/proxies", "GET /v1/proxies", "GET /v1/proxies")
		synctest.Wait()
		ctx, hangUp := context.WithTimeout(t.Context(), time.Second)
		defer hangUp()
		start := time.Now()
		serve(t, h, request(t, "GET /v1/proxies", "").WithContext(ctx))
		if time.Since(start) != time.Second {
			t.Errorf("it waited for %v", time.Since(start))
		}
		close(s.may)
		all.Wait()
		if s.most != 4 {
			t.Errorf("%d lists at once", s.most)
		}
	})
}

// planner notes how many plans are made at once.
type planner struct {
	discovery.Sweeper
	crowded
}

func (p *planner) Plan(context.Context) (discovery.SweepPlan, error) {
	p.count(+1)
	defer p.count(-1)
	time.Sleep(4 * time.Second)
	return discovery.SweepPlan{}, nil
}

// Each plan asks all providers for all that they have.
func TestPlansTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t)
		p := &planner{}
		c.Sweeper = p
		answers, all := ask(t, handler(t, c), "GET /v1/gc/plan", "GET /v1/gc/plan", "GET /v1/gc/plan", "GET /v1/gc/plan", "GET /v1/gc/plan")
		all.Wait()
		codes := map[int]int{}
		for _, w := range answers {
			codes[w.Code]++
		}
		if diff := cmp.Diff(map[int]int{200: 3, 503: 2}, codes); diff != "" || p.most != 1 {
			t.Errorf("%d at once; codes (-want +got):\n%s", p.most, diff)
		}
	})
}
