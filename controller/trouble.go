package controller

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// trouble logs when requests begin to fail, and when they succeed again. That the API server cannot be reached is said once for
// all that is asked for, and anything else for each.
type trouble struct {
	log *slog.Logger
	all string // what is asked for

	mu   sync.Mutex
	errs map[string]error // of the last request for each, where it failed
}

func newTrouble(log *slog.Logger, all string) *trouble {
	return &trouble{log: log, all: all, errs: map[string]error{}}
}

// told notes how a request ended, and logs it unless the one before ended alike.
func (t *trouble) told(ctx context.Context, about string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, down := t.errs[about], t.down()
	if err == nil {
		delete(t.errs, about)
		t.ended(ctx, about, was)
		return
	}
	t.errs[about] = err
	const fail = "requests to the API server fail, and are made again"
	switch {
	case unreached(err) && !down:
		t.log.WarnContext(ctx, fail, "about", t.all, "err", brief(err))
	case !unreached(err) && (was == nil || unreached(was) || apierrors.ReasonForError(was) != apierrors.ReasonForError(err)):
		t.log.WarnContext(ctx, fail, "about", about, "err", err)
	}
}

// ended logs the end of a failure, if there was one.
func (t *trouble) ended(ctx context.Context, about string, was error) {
	const succeed = "requests to the API server succeed again"
	switch {
	case unreached(was) && !t.down():
		t.log.InfoContext(ctx, succeed, "about", t.all)
	case was != nil && !unreached(was):
		t.log.InfoContext(ctx, succeed, "about", about)
	}
}

// down says whether a last request did not reach the API server.
func (t *trouble) down() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(t.errs)), unreached)
}

// last returns the error of the last request for something.
func (t *trouble) last(about string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return brief(t.errs[about])
}

// unreached says whether an error is of the way to the API server, and not its answer.
func unreached(err error) bool {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		switch status.ErrStatus.Code {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	_, ok := errors.AsType[*url.Error](err)
	return ok
}

// brief is an error without the long address that was asked.
func brief(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
