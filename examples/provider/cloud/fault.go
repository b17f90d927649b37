package cloud

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// Fault is what goes wrong with a call. Its fields go together: an answer may be late and then lost.
type Fault struct {
	// Op is the operation that it hits: create, get, list, delete or operations. Empty: any.
	Op string `json:"op,omitempty"`
	// Skip is how many calls pass before the first that it hits, such as the first page of a list. Defaults to none.
	Skip int `json:"skip,omitempty"`
	// Times is how many calls it hits. Defaults to 1.
	Times int `json:"times,omitempty"`
	// Status is answered instead of doing anything. Zero: the call is done.
	Status int `json:"status,omitempty"`
	// RetryAfterSeconds is the Retry-After header of that answer. Zero: none.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
	// EffectDelayMillis is how long after its arrival the call is done, also when its caller has gone.
	EffectDelayMillis int `json:"effectDelayMillis,omitempty"`
	// AnswerDelayMillis is how long after it was done the call is answered.
	AnswerDelayMillis int `json:"answerDelayMillis,omitempty"`
	// LoseAnswer closes the connection instead of answering.
	LoseAnswer bool `json:"loseAnswer,omitempty"`
	// FailCreate lets a create be accepted and come to nothing after the time of a boot, with this word as the error of its
	// operation. Empty: it does not fail.
	FailCreate string `json:"failCreate,omitempty"`
}

func (f Fault) validate() error {
	var problems []error
	if !slices.Contains([]string{"", "create", "get", "list", "delete", "operations"}, f.Op) {
		problems = append(problems, fmt.Errorf("op %q is none of create, get, list, delete and operations", f.Op))
	}
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		problems = append(problems, fmt.Errorf("status %d is no error", f.Status))
	}
	if min(f.Skip, f.Times, f.RetryAfterSeconds, f.EffectDelayMillis, f.AnswerDelayMillis) < 0 {
		problems = append(problems, errors.New("no number of a fault may be negative"))
	}
	if f.FailCreate != "" && !word.MatchString(f.FailCreate) {
		problems = append(problems, fmt.Errorf("failCreate must match %s", word))
	}
	return errors.Join(problems...)
}

// hits says whether the fault is for an operation.
func (f Fault) hits(op string) bool { return f.Op == "" || f.Op == op }

// refusal is the answer instead of an effect, if there is to be one. It repeats the request as careless servers do, so that
// a client that passes on what it was told gives itself away.
func (f Fault) refusal(body []byte) error {
	if f.Status == 0 {
		return nil
	}
	code := map[int]string{403: "permission_denied", 429: "quota_exceeded", 500: "internal", 503: "unavailable"}[f.Status]
	if code == "" {
		code = "injected"
	}
	return &apiError{
		Status: f.Status, RetryAfter: f.RetryAfterSeconds, Code: code,
		Message: fmt.Sprintf("%s: a fault was asked for; the request was %s", http.StatusText(f.Status), body),
	}
}

// Conditions are what the cloud is like for all calls.
type Conditions struct {
	// LagMillis is how old the answers of get, list and operations can be: each is as of a random moment up to so long ago,
	// so that they also go back and forth.
	LagMillis int `json:"lagMillis,omitempty"`
	// Capacity is how many instances there can be. A create beyond it is refused with 429. Zero: no limit.
	Capacity int `json:"capacity,omitempty"`
	// Probability is the share of calls that a random fault hits, from 0 to 1.
	Probability float64 `json:"probability,omitempty"`
	// Seed is that of all randomness.
	Seed uint64 `json:"seed,omitempty"`
	// Faults are those that are drawn from, evenly. Of their delays a random part is taken; Skip and Times mean nothing.
	// Defaults to those that a client gets over by itself: 500, 503 and lost or late effects and answers.
	Faults []Fault `json:"faults,omitempty"`
}

func (c Conditions) validate() error {
	var problems []error
	if c.LagMillis < 0 || c.Capacity < 0 {
		problems = append(problems, errors.New("lag and capacity must not be negative"))
	}
	if !(c.Probability >= 0 && c.Probability <= 1) {
		problems = append(problems, errors.New("probability must be from 0 to 1"))
	}
	for _, f := range c.Faults {
		problems = append(problems, f.validate())
	}
	return errors.Join(problems...)
}

func defaultFaults() []Fault {
	return []Fault{
		{Status: 500}, {Status: 503, RetryAfterSeconds: 1},
		{LoseAnswer: true}, {AnswerDelayMillis: 1000}, {EffectDelayMillis: 500}, {EffectDelayMillis: 500, LoseAnswer: true},
	}
}

// weather is what befalls calls: the scripted faults that are still due, and the conditions.
type weather struct {
	Conditions
	script []Fault
	random *rand.Rand
}

func (w *weather) set(c Conditions) {
	if len(c.Faults) == 0 {
		c.Faults = defaultFaults()
	}
	w.Conditions = c
	w.random = rand.New(rand.NewPCG(c.Seed, 0))
}

// draw returns what goes wrong with the next call of an operation: the first of the script that is for it, or something
// random.
func (w *weather) draw(op string) Fault {
	n := slices.IndexFunc(w.script, func(f Fault) bool { return f.hits(op) })
	if n < 0 {
		return w.chance(op)
	}
	due := &w.script[n]
	if due.Skip > 0 {
		due.Skip--
		return Fault{}
	}
	f := *due
	if due.Times--; due.Times <= 0 {
		w.script = slices.Delete(w.script, n, n+1)
	}
	return f
}

func (w *weather) chance(op string) Fault {
	if w.random.Float64() >= w.Probability {
		return Fault{}
	}
	f := w.Faults[w.random.IntN(len(w.Faults))]
	if !f.hits(op) {
		return Fault{}
	}
	f.EffectDelayMillis = w.part(f.EffectDelayMillis)
	f.AnswerDelayMillis = w.part(f.AnswerDelayMillis)
	return f
}

// moment is as of when a question that comes now is answered.
func (w *weather) moment(now time.Time) time.Time {
	return now.Add(-time.Duration(w.part(w.LagMillis)) * time.Millisecond)
}

func (w *weather) part(n int) int { return w.random.IntN(n + 1) }

func (c *Cloud) draw(op string) Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.weather.draw(op)
}

// Inject adds a fault to the script. Calls of its operation take the faults in the order of their coming.
func (c *Cloud) Inject(f Fault) error {
	if err := f.validate(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.weather.script = append(c.weather.script, f)
	return nil
}

// SetConditions replaces the conditions, beginning with their seed.
func (c *Cloud) SetConditions(next Conditions) error {
	if err := next.validate(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.weather.set(next)
	return nil
}

// Heal forgets all faults and makes the conditions fair.
func (c *Cloud) Heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.weather.script = nil
	c.weather.set(Conditions{})
}
