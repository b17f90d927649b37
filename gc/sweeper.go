package gc

import (
	"context"
	"errors"
	"fmt"
)

// Sweeper finds and deletes orphans and strays. All its methods may be called concurrently.
type Sweeper struct {
	cfg Config
}

// New makes a sweeper. It starts nothing; its error holds all problems of the configuration, and is [ErrRestricted] when
// that is among them.
func New(c Config) (*Sweeper, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("gc: configuration: %w", err)
	}
	return &Sweeper{cfg: c.withDefaults()}, nil
}

// Run sweeps every Interval, first after a full one, until ctx ends; it then returns nil.
func (s *Sweeper) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Plan says what a sweep would do now, and does nothing.
func (s *Sweeper) Plan(context.Context) (Plan, error) { return Plan{}, errors.ErrUnsupported }

// Sweep makes one sweep now and says what it did.
func (s *Sweeper) Sweep(context.Context) (Plan, error) { return Plan{}, errors.ErrUnsupported }

// Allow lifts the brake of a provider for the next sweep, for at most so many deletions.
func (s *Sweeper) Allow(string, int) error { return errors.ErrUnsupported }
