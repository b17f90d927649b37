package gcp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/api/option"
)

const (
	// requestTime is how long one request may take.
	requestTime = 30 * time.Second
	// maxAnswer bounds an answer. The largest is a page of 500 machines, each with its metadata.
	maxAnswer = 300 << 20
)

// errStranger says that a request was answered with something else than it asked for: that is no proof of anything.
var errStranger = errors.New("no answer of the Compute Engine API")

// client speaks with the API. It is opened with the first request, because to look for credentials may take the network, and
// opened again after a failure, so that credentials that are put there later are found.
type client struct {
	settings settings
	tracers  trace.TracerProvider
	base     http.RoundTripper

	opening chan struct{} // holds a token while somebody opens
	opened  *connection
}

// connection is what requests are sent with.
type connection struct {
	http       *http.Client
	instances  *compute.InstancesClient
	operations *compute.ZoneOperationsClient
	options    []option.ClientOption
}

func newClient(s settings, tracers trace.TracerProvider) *client {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 8
	return &client{settings: s, tracers: tracers, base: bounded{base}, opening: make(chan struct{}, 1)}
}

// open returns the connection, and makes it first if there is none. That goes on when ctx ends, for the next one who asks.
func (c *client) open(ctx context.Context) (*connection, error) {
	select {
	case c.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.opened != nil {
		defer func() { <-c.opening }()
		return c.opened, nil
	}
	done := make(chan error, 1)
	var conn *connection
	go func() {
		defer func() { <-c.opening }()
		var err error
		if conn, err = c.connect(); err == nil {
			c.opened = conn
		}
		done <- err
	}()
	select {
	case err := <-done:
		return conn, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *client) connect() (*connection, error) {
	authorized, err := c.settings.authorized(traced(c.base, c.tracers))
	if err != nil {
		return nil, err
	}
	authorized.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	conn := &connection{http: authorized, options: []option.ClientOption{
		// Without a logger of ours, an environment variable would make the library print requests, secrets included.
		option.WithLogger(slog.New(slog.DiscardHandler)),
	}}
	if c.settings.Endpoint != "" {
		conn.options = append(conn.options, option.WithEndpoint(c.settings.Endpoint))
	}
	if conn.instances, err = conn.instancesOver(authorized); err != nil {
		return nil, err
	}
	conn.operations, err = conn.operationsOver(authorized)
	return conn, err
}

// traced makes a span of each request. What is global is left out of it: Google needs no trace headers, and nobody these metrics.
func traced(base http.RoundTripper, tracers trace.TracerProvider) http.RoundTripper {
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(tracers), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator()))
}

// The library would repeat reads on its own for up to ten minutes, and lose why. Taking its call options away leaves that to
// the fleet.

func (c *connection) instancesOver(h *http.Client) (*compute.InstancesClient, error) {
	all, err := compute.NewInstancesRESTClient(context.Background(), append(c.options, option.WithHTTPClient(h))...)
	if err != nil {
		return nil, err
	}
	*all.CallOptions = compute.InstancesCallOptions{}
	return all, nil
}

func (c *connection) operationsOver(h *http.Client) (*compute.ZoneOperationsClient, error) {
	all, err := compute.NewZoneOperationsRESTClient(context.Background(), append(c.options, option.WithHTTPClient(h))...)
	if err != nil {
		return nil, err
	}
	*all.CallOptions = compute.ZoneOperationsCallOptions{}
	return all, nil
}

// within returns a client for requests that the library makes without their context, which is how it lists.
func (c *connection) within(ctx context.Context) *http.Client {
	h := *c.http
	h.Transport = contextual{ctx, c.http.Transport}
	return &h
}

// insert asks for a machine, and returns the operation that makes it.
func (c *client) insert(ctx context.Context, zone, requestID string, vm *computepb.Instance) (*computepb.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	op, err := conn.instances.Insert(ctx, &computepb.InsertInstanceRequest{
		Project: c.settings.Project, Zone: zone, RequestId: new(requestID), InstanceResource: vm,
	})
	if err != nil {
		return nil, err
	}
	if op.Name() == "" {
		return nil, errStranger
	}
	return op.Proto(), nil
}

// get returns a machine.
func (c *client) get(ctx context.Context, zone, name string) (*computepb.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	vm, err := conn.instances.Get(ctx, &computepb.GetInstanceRequest{Project: c.settings.Project, Zone: zone, Instance: name})
	if err == nil && (vm.GetName() != name || vm.GetId() == 0) {
		return nil, errStranger
	}
	return vm, err
}

// delete begins the deletion of the machine that has a numeric id.
func (c *client) delete(ctx context.Context, zone, id string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	conn, err := c.open(ctx)
	if err != nil {
		return err
	}
	_, err = conn.instances.Delete(ctx, &computepb.DeleteInstanceRequest{Project: c.settings.Project, Zone: zone, Instance: id})
	return err
}

// operation returns an operation.
func (c *client) operation(ctx context.Context, zone, name string) (*computepb.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	op, err := conn.operations.Get(ctx, &computepb.GetZoneOperationRequest{Project: c.settings.Project, Zone: zone, Operation: name})
	if err == nil && op.GetName() != name {
		return nil, errStranger
	}
	return op, err
}

// operationsPage returns a page of the operations of a zone, the youngest first, and the token of the next page.
func (c *client) operationsPage(ctx context.Context, zone, token string) ([]*computepb.Operation, string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	conn, err := c.open(ctx)
	if err != nil {
		return nil, "", err
	}
	operations, err := conn.operationsOver(conn.within(ctx))
	if err != nil {
		return nil, "", err
	}
	it := operations.List(ctx, &computepb.ListZoneOperationsRequest{
		Project: c.settings.Project, Zone: zone, OrderBy: new("creationTimestamp desc"),
	})
	return it.InternalFetch(pageSize, token)
}

// instancesPage returns a page of the machines of all zones that bear a label. A zone that cannot be reached is told of in
// the page and is no error.
func (c *client) instancesPage(ctx context.Context, filter string, size uint32, token string) (*computepb.InstanceAggregatedList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	instances, err := conn.instancesOver(conn.within(ctx))
	if err != nil {
		return nil, err
	}
	request := &computepb.AggregatedListInstancesRequest{Project: c.settings.Project, ReturnPartialSuccess: new(true)}
	if filter != "" {
		request.Filter = new(filter)
	}
	// Page by page: a page without machines may still say that a zone could not be reached.
	it := instances.AggregatedList(ctx, request)
	if _, _, err := it.InternalFetch(int(size), token); err != nil {
		return nil, err
	}
	page, ok := it.Response.(*computepb.InstanceAggregatedList)
	if !ok {
		return nil, errors.New("the library answered with no list")
	}
	return page, nil
}

// contextual sends requests within a context that is not their own.
type contextual struct {
	ctx  context.Context
	next http.RoundTripper
}

func (t contextual) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.next.RoundTrip(r.WithContext(t.ctx))
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
