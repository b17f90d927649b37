package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// source keeps a cache like what the API server has of one kind of objects, as long as it runs.
type source struct {
	what     string
	informer cache.SharedIndexInformer
	log      *slog.Logger

	mu      sync.Mutex
	failing error // the last request's, nil when it succeeded
}

// sourceConfig is what a [source] is made of.
type sourceConfig struct {
	what      string // for people
	client    rest.Interface
	resource  string
	namespace string
	label     string // that objects must bear with the value "true"; "" for all
	example   runtime.Object
	keep      cache.TransformFunc // makes what is kept of what came
	indexers  cache.Indexers
	timeout   time.Duration
	log       *slog.Logger
}

func newSource(c sourceConfig) (*source, error) {
	s := &source{what: c.what, log: c.log}
	s.informer = cache.NewSharedIndexInformerWithOptions(s.requests(c), c.example, cache.SharedIndexInformerOptions{Indexers: c.indexers})
	quiet := func(context.Context, *cache.Reflector, error) {} // requests that fail are logged where they are made
	return s, errors.Join(s.informer.SetTransform(c.keep), s.informer.SetWatchErrorHandlerWithContext(quiet))
}

// requests are the lists and watches of the source.
func (s *source) requests(c sourceConfig) cache.ListerWatcher {
	request := func(options *metav1.ListOptions) *rest.Request {
		if c.label != "" {
			options.LabelSelector = c.label + "=true"
		}
		return c.client.Get().Namespace(c.namespace).Resource(c.resource).VersionedParams(options, metav1.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			limited, cancel := context.WithTimeout(ctx, c.timeout)
			defer cancel()
			list, err := request(&options).Do(limited).Get()
			return list, s.told(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			stream, err := request(&options).Watch(ctx)
			return stream, s.told(ctx, err)
		},
	}
}

// told notes how a request ended, and logs it when the one before ended otherwise. It returns err.
func (s *source) told(ctx context.Context, err error) error {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return err // a list follows that is whole
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.failing
	s.failing = err
	switch {
	case err == nil && was != nil:
		s.log.InfoContext(ctx, "objects are read again", "objects", s.what)
	case err != nil && (was == nil || apierrors.ReasonForError(was) != apierrors.ReasonForError(err)):
		s.log.WarnContext(ctx, "objects cannot be read: what is known of them is the last state", "objects", s.what, "err", err)
	}
	return err
}

// ready says why the cache is not filled yet, or nil.
func (s *source) ready() error {
	if s.informer.HasSynced() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing != nil {
		return fmt.Errorf("%s cannot be read: %w", s.what, s.failing)
	}
	return fmt.Errorf("%s are not read yet", s.what)
}
