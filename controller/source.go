package controller

import (
	"context"
	"errors"
	"fmt"
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
	trouble  *trouble
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
	trouble   *trouble
}

func newSource(c sourceConfig) (*source, error) {
	s := &source{what: c.what, trouble: c.trouble}
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

// told notes how a request ended, and returns its error. One that asked for what is too old says nothing: a list follows.
func (s *source) told(ctx context.Context, err error) error {
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w: the CRDs are missing: proxyfleet crds | kubectl apply --server-side -f -", err)
	}
	if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		s.trouble.told(ctx, s.what, err)
	}
	return err
}

// ready says why the cache is not filled yet, or nil.
func (s *source) ready() error {
	if s.informer.HasSynced() {
		return nil
	}
	if err := s.trouble.last(s.what); err != nil {
		return fmt.Errorf("%s cannot be read: %w", s.what, err)
	}
	return fmt.Errorf("%s are not read yet", s.what)
}
