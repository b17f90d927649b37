// Package cloud is a small cloud: the other side of the tutorial for authors of providers, and a test bed for crashes.
//
// Its instances are real forward proxies, detached tinyproxy processes that outlive both the fleet and the cloud. Its REST
// API has what real clouds have: zones, labels, pages, names that are unique, numeric ids that never come again, request
// ids that make a repeated create harmless, and operations that tell what became of one. Its admin API makes it misbehave
// as real clouds do, by script or at random, and remembers every instance that ever was, so that a test can prove that
// there were never two where one belonged. The README beside this folder lists both APIs.
//
// It is safe to run on any machine: the proxies listen on 127.0.0.1, take clients from there, and relay to loopback only.
// It needs Linux, for it finds its processes again in /proc.
package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Config is how a cloud is. Only Dir is required.
type Config struct {
	// Dir holds the state of the cloud and the files of its instances. It is made when it is missing, for its owner alone.
	// One cloud at a time may use it; the next one takes over what runs.
	Dir string
	// Zones are the places for instances. Defaults to a and b.
	Zones []string
	// Boot is how long an instance is provisioning. Defaults to 100 ms.
	Boot time.Duration
	// Stop is how long an instance is stopping. Its process is killed at the beginning. Defaults to 100 ms.
	Stop time.Duration
	// PageSize is how many instances a list answers at once. Defaults to 50.
	PageSize int
	// Conditions are those of the beginning. Defaults to fair ones.
	Conditions Conditions
	// Log hears of what people would want to know. Defaults to nowhere.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if len(c.Zones) == 0 {
		c.Zones = []string{"a", "b"}
	}
	c.Boot = cmp.Or(c.Boot, 100*time.Millisecond)
	c.Stop = cmp.Or(c.Stop, 100*time.Millisecond)
	c.PageSize = cmp.Or(c.PageSize, 50)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var problems []error
	if c.Dir == "" {
		problems = append(problems, errors.New("dir is required"))
	}
	if c.Boot < 0 || c.Stop < 0 {
		problems = append(problems, errors.New("boot and stop must not be negative"))
	}
	if c.PageSize < 0 {
		problems = append(problems, errors.New("page size must not be negative"))
	}
	for _, zone := range c.Zones {
		if !word.MatchString(zone) {
			problems = append(problems, fmt.Errorf("zone %q must match %s", zone, word))
		}
	}
	return errors.Join(append(problems, c.Conditions.validate())...)
}

// errClosed is the answer of a cloud that has let go of its directory.
var errClosed = &apiError{Status: 503, Code: "unavailable", Message: "the cloud is closed"}

// Cloud is a cloud. It is an [http.Handler] for both of its APIs. All methods may be called concurrently.
type Cloud struct {
	config    Config
	tinyproxy string
	lock      *os.File
	mux       http.Handler
	closed    chan struct{}

	mu        sync.Mutex
	state     state
	processes map[int64]*process // those that run, by the id of the instance
	nextPort  int
	weather   weather
}

// Open takes over the directory and what runs in it, or begins an empty cloud there.
func Open(config Config) (*Cloud, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("example cloud: %w", err)
	}
	c := &Cloud{config: config, closed: make(chan struct{}), nextPort: firstPort + rand.IntN(portCount)}
	c.weather.set(config.Conditions)
	c.mux = c.routes()
	if err := c.open(); err != nil {
		return nil, fmt.Errorf("example cloud: %w", err)
	}
	return c, nil
}

func (c *Cloud) open() (err error) {
	if c.config.Dir, err = filepath.Abs(c.config.Dir); err != nil {
		return err
	}
	if c.tinyproxy, err = findTinyproxy(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.config.Dir, 0o700); err != nil {
		return err
	}
	if c.lock, err = lockDir(c.config.Dir); err != nil {
		return err
	}
	if err := c.takeOver(); err != nil {
		return errors.Join(err, c.lock.Close())
	}
	return nil
}

// takeOver brings the processes in line with the state: one whose instance is to run is adopted, any other is killed. An
// instance without a process has died: its predecessor's cloud was killed between the record and the start, or the process
// went while nobody looked.
func (c *Cloud) takeOver() error {
	if err := c.state.load(c.statePath()); err != nil {
		return err
	}
	if err := os.WriteFile(c.filterPath(), []byte(loopbackOnly), 0o600); err != nil {
		return err
	}
	found, err := findProcesses(c.config.Dir)
	if err != nil {
		return err
	}
	c.processes = found
	now := time.Now()
	for id := range found {
		if i := c.state.byID(id); i == nil || !i.runs(now) {
			c.end(id)
		}
	}
	for _, i := range c.state.Instances {
		if i.runs(now) && c.processes[i.ID] == nil {
			i.Died = now
		}
	}
	c.config.Log.Info("took over", "dir", c.config.Dir, "instances", len(c.processes))
	return c.save()
}

// Close lets go of the directory. The instances run on; calls are refused from now on, and those that were delayed have no
// effect any more.
func (c *Cloud) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return nil
	}
	close(c.closed)
	return c.lock.Close()
}

func (c *Cloud) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// History returns all instances that ever were, those that are gone too, in the order of their making.
func (c *Cloud) History() []Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(time.Now())
	all := make([]Instance, len(c.state.Instances))
	for n, i := range c.state.Instances {
		all[n] = *i
	}
	return all
}

// Kill ends the process of an instance, as a crash of it would. The instance remains, stopped.
func (c *Cloud) Kill(zone, name string) error {
	return c.change(func(now time.Time) error {
		i := c.state.find(zone, name, now)
		if i == nil {
			return notFound("instance")
		}
		i.Died = cmp.Or(i.Died, now)
		c.end(i.ID)
		return nil
	})
}

// Purge ends all instances at once and returns when none of their processes is left. The history remains.
func (c *Cloud) Purge() error {
	var ended []*process
	err := c.change(func(now time.Time) error {
		ended = slices.Collect(maps.Values(c.processes))
		for _, i := range c.state.Instances {
			if i.exists(now) {
				i.Stopping = cmp.Or(i.Stopping, now)
				i.Ended = now
				c.end(i.ID)
			}
		}
		return nil
	})
	return errors.Join(err, awaitEnd(ended))
}

// change is for whatever changes the world: it looks at the world first, then does its work, and keeps what came of it.
// A change that needs a record before its effect saves that itself.
func (c *Cloud) change(do func(now time.Time) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return errClosed
	}
	now := time.Now()
	c.observe(now)
	return errors.Join(do(now), c.save())
}

// observe notes which processes have ended by themselves.
func (c *Cloud) observe(now time.Time) {
	for id, p := range c.processes {
		if !p.alive() {
			delete(c.processes, id)
			c.state.byID(id).Died = now
		}
	}
}

// end kills the process of an instance, if there is one.
func (c *Cloud) end(id int64) {
	if p, ok := c.processes[id]; ok {
		p.kill()
		delete(c.processes, id)
	}
	c.removeFiles(id)
}
