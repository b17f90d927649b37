package pod

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// requestTime is how long one request may take.
	requestTime = 30 * time.Second
	// maxAnswer bounds an answer. The largest is a page of 500 pods.
	maxAnswer = 64 << 20
	// perSecond and burst bound the requests. The API server has its own, fairer limits, which it answers 429 for.
	perSecond, burst = 100, 200
)

var (
	// errStranger says that a request was answered with something else than it asked for: that is no proof of anything.
	errStranger = errors.New("no answer of the Kubernetes API")
	// errConfig says that there is nothing to reach the cluster by.
	errConfig = errors.New("no configuration of a cluster")
)

// client speaks with the API server. It is opened with the first request, and tried again after a failure, so that a kubeconfig
// that is put there later is found, and a configuration can be checked elsewhere than in the cluster.
type client struct {
	settings settings

	mu     sync.Mutex
	opened rest.Interface
}

func (c *client) open() (rest.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened != nil {
		return c.opened, nil
	}
	config, err := c.settings.restConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	opened, err := newREST(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	c.opened = opened
	return opened, nil
}

// restConfig says where the cluster is.
func (s settings) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if s.Kubeconfig != "" {
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: s.Kubeconfig}
	} else if s.Context == "" {
		if config, err := rest.InClusterConfig(); !errors.Is(err, rest.ErrNotInCluster) {
			return config, err
		}
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: s.Context}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
}

// newREST makes a client for the core API and nothing else.
func newREST(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(config)
	own.APIPath, own.GroupVersion = "/api", &corev1.SchemeGroupVersion
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own.UserAgent = "proxyfleet"
	own.QPS, own.Burst = perSecond, burst
	own.WarningHandler = rest.NoWarnings{} // the other one writes to standard error
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	return rest.RESTClientFor(own)
}

// do sends a request and reads the answer into an object. What the API server asks to wait is for the fleet to wait: the library
// would do so in the middle of a call.
func (c *client) do(ctx context.Context, prepare func(rest.Interface) *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	conn, err := c.open()
	if err != nil {
		return err
	}
	result := prepare(conn).MaxRetries(0).Do(ctx)
	if into == nil {
		return result.Error()
	}
	return result.Into(into)
}

// pod sends a request whose answer is a pod of that name.
func (c *client) pod(ctx context.Context, name string, prepare func(rest.Interface) *rest.Request) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := c.do(ctx, prepare, pod); err != nil {
		return nil, err
	}
	if pod.Name != name || pod.UID == "" {
		return nil, errStranger
	}
	return pod, nil
}

func (c *client) createPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return c.pod(ctx, pod.Name, func(r rest.Interface) *rest.Request {
		return r.Post().Namespace(pod.Namespace).Resource("pods").Body(pod)
	})
}

func (c *client) getPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.pod(ctx, name, func(r rest.Interface) *rest.Request {
		return r.Get().Namespace(namespace).Resource("pods").Name(name)
	})
}

// patchPod changes a pod.
func (c *client) patchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	return c.pod(ctx, name, func(r rest.Interface) *rest.Request {
		return r.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("pods").Name(name).Body(patch)
	})
}

// deletePod begins the deletion of a pod that is as the preconditions say.
func (c *client) deletePod(ctx context.Context, namespace, name string, only metav1.Preconditions) error {
	options := &metav1.DeleteOptions{Preconditions: &only}
	return c.do(ctx, func(r rest.Interface) *rest.Request {
		return r.Delete().Namespace(namespace).Resource("pods").Name(name).Body(options)
	}, nil)
}

// podsPage returns a page of the pods that a selector matches.
func (c *client) podsPage(ctx context.Context, namespace, selector string, size int, token string) (*corev1.PodList, error) {
	page := &corev1.PodList{}
	err := c.do(ctx, func(r rest.Interface) *rest.Request {
		r2 := r.Get().Namespace(namespace).Resource("pods").Param("labelSelector", selector).Param("limit", fmt.Sprint(size))
		if token != "" {
			r2.Param("continue", token)
		}
		return r2
	}, page)
	if err == nil && page.ResourceVersion == "" {
		return nil, errStranger
	}
	return page, err
}

func (c *client) createSecret(ctx context.Context, s *corev1.Secret) error {
	return c.do(ctx, func(r rest.Interface) *rest.Request {
		return r.Post().Namespace(s.Namespace).Resource("secrets").Body(s)
	}, nil)
}

// bounded reads answers up to a bound.
type bounded struct{ next http.RoundTripper }

func (t bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	return answer, nil
}
