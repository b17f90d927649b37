package libvirt

import (
	"context"
	sha "crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/proxyfleet/fleet/provider"
)

// The reasons of images.
const (
	ImageTransfer    = "ImageTransfer"    // it is on its way: no failure
	ImageUnavailable = "ImageUnavailable" // its server does not answer, or answers with trouble
	ImageMissing     = "ImageMissing"     // its server says that it is not there
	ImageTruncated   = "ImageTruncated"   // it ended too soon
	ImageStalled     = "ImageStalled"     // nothing came for a while
	ImageChecksum    = "ImageChecksum"    // it is another than the configuration says
	ImageUnusable    = "ImageUnusable"    // it is too large, of unknown size, or leads to other files
)

const (
	mostImage = 64 << 30
	stallTime = time.Minute
	imageTime = time.Hour
)

// transfer moves one image into the pool of one host.
type transfer struct {
	image Image
	host  HostConfig
	owner string
	// room is what must be left in the pool when it has arrived.
	room uint64
	dial func(context.Context) (*Conn, error)
	http *http.Client
	// most bounds the whole of it, and watch is told of it; see [Budgets] and [Policy].
	most  time.Duration
	watch func(ctx context.Context, host, image string) (_ context.Context, done func(error))

	moved, size atomic.Uint64
}

// progress says how far it is.
func (t *transfer) progress() string {
	moved, size := t.moved.Load(), t.size.Load()
	if size == 0 {
		return fmt.Sprintf("image %s will be fetched", t.image.Name)
	}
	return fmt.Sprintf("image %s: %d of %d MiB", t.image.Name, moved>>20, size>>20)
}

// run moves the image in time.
func (t *transfer) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, t.most,
		wrong(provider.ErrTransient, ImageStalled, "image %s did not arrive within %v", t.image.Name, t.most))
	defer cancel()
	if t.watch == nil {
		return t.move(ctx)
	}
	ctx, done := t.watch(ctx, t.host.Name, t.image.Name)
	err := t.move(ctx)
	done(err)
	return err
}

// move moves the image, unless it is there already. It leaves nothing unfinished behind if the host lets it.
func (t *transfer) move(ctx context.Context) error {
	c, err := t.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := c.runningPool(ctx, t.host.Pool)
	if err != nil {
		return err
	}
	volumes, err := c.Volumes(ctx, p)
	if err != nil || findImage(t.image, volumes) != "" {
		return err
	}
	for _, name := range leftovers(t.image, t.owner, volumes) {
		if err := c.DeleteVolume(ctx, p, name); err != nil {
			return err
		}
	}
	if p, err = c.measured(ctx, p); err != nil {
		return err
	}
	name := newVolume(t.image, t.owner)
	if err := t.fetch(ctx, c, p, name); err != nil {
		t.remove(ctx, name)
		return err
	}
	return nil
}

// remove deletes what a transfer leaves that failed. Its connection may be gone, and its context over. What cannot be removed now
// is removed by the next transfer.
func (t *transfer) remove(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTime)
	defer cancel()
	c, err := t.dial(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	if p, err := c.Pool(ctx, t.host.Pool); err == nil {
		_ = c.DeleteVolume(ctx, p, name)
	}
}

// fetch moves the bytes, looks at what has arrived, and says that it is complete.
func (t *transfer) fetch(ctx context.Context, c *Conn, p Pool, name string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, size, err := t.get(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if need := size + t.room; need > p.Available {
		return wrong(provider.ErrQuotaExceeded, PoolFull, "pool %s has %d MiB left, and %d are needed: %d of them for image %s",
			t.host.Pool, p.Available>>20, need>>20, size>>20, t.image.Name)
	}
	if err := c.CreateVolume(ctx, p, blankVolume(name, size)); err != nil {
		return err
	}
	source := t.source(body, cancel)
	defer source.stalled.Stop()
	err = c.Upload(ctx, p, name, source, size, 0)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case source.err != nil:
		return wrong(provider.ErrTransient, ImageTruncated, "image %s broke off after %d of %d bytes: %w", t.image.Name, t.moved.Load(), size, source.err)
	case err != nil:
		return err
	case t.moved.Load() != size:
		return wrong(provider.ErrTransient, ImageTruncated, "image %s has %d bytes, and %d were announced", t.image.Name, t.moved.Load(), size)
	}
	if sum := hex.EncodeToString(source.sum.Sum(nil)); sum != t.image.SHA256 {
		return wrong(provider.ErrPermanent, ImageChecksum, "image %s has the SHA-256 %s, and the configuration says %s", t.image.Name, sum, t.image.SHA256)
	}
	return t.finish(ctx, c, p, name, size)
}

// finish has the host look at what it has, and then says that it is complete.
func (t *transfer) finish(ctx context.Context, c *Conn, p Pool, name string, size uint64) error {
	if err := c.refreshIdle(ctx, p); err != nil {
		return err
	}
	v, err := c.Volume(ctx, p, name)
	if err != nil {
		return err
	}
	if v.BackingStore != nil && v.BackingStore.Path != "" {
		return wrong(provider.ErrPermanent, ImageUnusable, "image %s is only what differs from another file, %s", t.image.Name, v.BackingStore.Path)
	}
	if v.Physical != nil && v.Physical.Value != size {
		return wrong(provider.ErrTransient, ImageTruncated, "of image %s %d bytes arrived at the host, of %d", t.image.Name, v.Physical.Value, size)
	}
	return c.CreateVolume(ctx, p, blankVolume(name+complete, 0))
}

// refreshIdle has libvirt look at what is in a pool, again if it fails: while another volume is being made there it refuses, under a
// number that it has for much else, and that is no reason to throw an image away.
func (c *Conn) refreshIdle(ctx context.Context, p Pool) error {
	const attempts = 10
	for i := 1; ; i++ {
		err := c.Refresh(ctx, p)
		if !code(err, golibvirt.ErrInternalError) || i == attempts {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// get asks for the image.
func (t *transfer) get(ctx context.Context) (io.ReadCloser, uint64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.image.URL, nil)
	if err != nil {
		return nil, 0, wrong(provider.ErrPermanent, ImageUnusable, "image %s: %w", t.image.Name, withoutURL(err))
	}
	response, err := t.http.Do(request)
	if err != nil {
		return nil, 0, wrong(provider.ErrTransient, ImageUnavailable, "image %s: %w", t.image.Name, withoutURL(err))
	}
	if err := t.usable(response); err != nil {
		_ = response.Body.Close()
		return nil, 0, err
	}
	t.size.Store(uint64(response.ContentLength))
	return response.Body, uint64(response.ContentLength), nil
}

// withoutURL says of a request's failure which host it was about, and why, and nothing more of the URL: what that asks for may be a
// secret, also where a server has led to it.
func withoutURL(err error) error {
	failed, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err
	}
	cause := failed.Err
	if strings.Contains(cause.Error(), "Location") { // which net/http quotes
		cause = errors.New("it leads to what is no URL")
	}
	u, err := url.Parse(failed.URL)
	if err != nil || u.Host == "" {
		return cause
	}
	return fmt.Errorf("%s: %w", u.Host, cause)
}

func (t *transfer) usable(response *http.Response) error {
	switch code := response.StatusCode; {
	case code == http.StatusOK:
	case code == http.StatusTooManyRequests, code >= 500:
		return wrong(provider.ErrTransient, ImageUnavailable, "image %s: its server answers %s", t.image.Name, response.Status)
	default:
		return wrong(provider.ErrPermanent, ImageMissing, "image %s: its server answers %s", t.image.Name, response.Status)
	}
	switch size := response.ContentLength; {
	case size <= 0:
		return wrong(provider.ErrPermanent, ImageUnusable, "image %s: its server does not say how large it is", t.image.Name)
	case size > mostImage:
		return wrong(provider.ErrPermanent, ImageUnusable, "image %s has %d bytes, and at most %d are taken", t.image.Name, size, int64(mostImage))
	}
	return nil
}

// source reads an image, and keeps what went wrong: libvirt's library does not always say.
type source struct {
	r     io.Reader
	sum   hash.Hash
	moved *atomic.Uint64
	// stalled goes off when nothing came for a while. After the last byte it is the host that takes its time.
	stalled *time.Timer
	err     error
}

// source is the body of an answer. When nothing comes of it for a while, it is at an end.
func (t *transfer) source(body io.Reader, end context.CancelCauseFunc) *source {
	return &source{r: body, sum: sha.New(), moved: &t.moved, stalled: time.AfterFunc(stallTime, func() {
		end(wrong(provider.ErrTransient, ImageStalled, "image %s: nothing came for %v", t.image.Name, stallTime))
	})}
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err == nil {
		s.stalled.Reset(stallTime)
	} else {
		s.stalled.Stop()
	}
	s.moved.Add(uint64(n))
	_, _ = s.sum.Write(b[:n])
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// newHTTPClient is one whose connections end when nothing is said on them for long.
func newHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSHandshakeTimeout:   dialTime,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       time.Second,
		DisableCompression:    true,
		ForceAttemptHTTP2:     true,
	}}
}
