package controller

import (
	"context"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// trouble logs when requests of one kind begin to fail, and when they succeed again.
type trouble struct {
	log   *slog.Logger
	about string // what is asked for

	mu  sync.Mutex
	err error // the last request's, nil when it succeeded
}

// told notes how a request ended, and logs it unless the one before ended alike.
func (t *trouble) told(ctx context.Context, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.err
	t.err = err
	switch {
	case err == nil && was != nil:
		t.log.InfoContext(ctx, "requests to the API server succeed again", "about", t.about)
	case err != nil && (was == nil || apierrors.ReasonForError(was) != apierrors.ReasonForError(err)):
		t.log.WarnContext(ctx, "requests to the API server fail: what is known is the last state", "about", t.about, "err", err)
	}
}

// last returns the error of the last request.
func (t *trouble) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
