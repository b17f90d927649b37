package libvirt

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/proxyfleet/fleet/provider"
)

// Create defines the domain first: that takes the name and stores the marks in one call. Its disk and its seed are made anew
// before each start, so that whatever an earlier attempt left of them does not matter.
func (p *Provider) Create(ctx context.Context, r provider.Request) (in provider.Instance, _ error) {
	const op = "create"
	m, err := p.config.machine(op, r)
	if err != nil {
		return in, err
	}
	unlock, err := p.names.lock(ctx, m.id())
	if err != nil {
		return in, p.failure(ctx, op, err)
	}
	defer unlock()
	err = p.on(ctx, op, m.host.Name, func(c *Conn) error {
		in, err = p.create(ctx, c, m)
		return err
	})
	if err != nil {
		return provider.Instance{}, err
	}
	return in, nil
}

func (p *Provider) create(ctx context.Context, c *Conn, m machine) (provider.Instance, error) {
	d, has, err := p.named(ctx, c, m.request.Name)
	switch {
	case code(err, golibvirt.ErrNoDomain):
		return p.build(ctx, c, m, nil)
	case err != nil:
		return provider.Instance{}, err
	case has.Fleet != m.request.Marks.Fleet || has.UID != m.request.Marks.UID:
		return provider.Instance{}, wrong(provider.ErrPermanent, provider.NameTaken, "the domain %s is somebody else's: its marks are not those of this proxy", d.Name)
	}
	condition, err := c.State(ctx, d)
	if err != nil {
		return provider.Instance{}, err
	}
	if condition.halfMade() && has.Hash == m.request.Marks.Hash {
		return p.resume(ctx, c, m, &built{d, has})
	}
	return p.observe(ctx, c, d, has)
}

// built is a domain that is defined and never ran.
type built struct {
	domain Domain
	marks  marks
}

// resume goes on with a domain that never ran. One that is to have its disk in another pool than the configuration says by now is
// made anew: nobody may have an image there any more.
func (p *Provider) resume(ctx context.Context, c *Conn, m machine, b *built) (provider.Instance, error) {
	definition, err := c.Definition(ctx, b.domain)
	if err != nil {
		return provider.Instance{}, err
	}
	if poolOf(definition, m.host.Pool) == m.host.Pool {
		return p.build(ctx, c, m, b)
	}
	if err := p.delete(ctx, c, b.domain, m.host.Name); err != nil {
		return provider.Instance{}, err
	}
	return p.build(ctx, c, m, nil)
}

// build makes what is lacking for a machine to run, and starts it.
func (p *Provider) build(ctx context.Context, c *Conn, m machine, b *built) (provider.Instance, error) {
	pool, err := p.pool(ctx, c, m.host.Pool)
	if err != nil {
		return provider.Instance{}, err
	}
	image, ok, err := c.image(ctx, pool, m.image)
	if err != nil {
		return provider.Instance{}, err
	}
	size, err := m.diskSize(image)
	if err != nil {
		return provider.Instance{}, err
	}
	room, err := p.room(pool, m, size)
	if err != nil {
		return provider.Instance{}, err
	}
	if !ok {
		return p.onItsWay(m, room)
	}
	fresh := b == nil
	if fresh {
		if b, err = p.define(ctx, c, m); err != nil {
			return provider.Instance{}, err
		}
	}
	if err = p.fill(ctx, c, m, pool, b, overlay(m.disk(), size, image)); err == nil {
		err = startFailure(c.Start(ctx, b.domain))
	}
	if err != nil && fresh {
		p.undo(ctx, c, b.domain)
	}
	if err != nil {
		return provider.Instance{}, err
	}
	return provider.Instance{ID: m.id(), Incarnation: incarnation(b.domain), Marks: b.marks.Marks, Created: b.marks.Created, State: provider.Provisioning}, nil
}

// undo removes what a create has made that failed, if the host still answers: else the fleet would take it for a machine that was
// stopped, and replace it. What stays is seen by the next call, and so is a machine that another leader has started meanwhile.
func (p *Provider) undo(ctx context.Context, c *Conn, d Domain) {
	select {
	case <-c.Closed():
		return
	default:
	}
	condition, err := c.State(ctx, d)
	if err == nil && condition.halfMade() {
		err = p.delete(ctx, c, d, c.host.Name)
	}
	if err != nil {
		p.logger.WarnContext(ctx, "what is left of a create that failed is not removed", "host", c.host.Name, "domain", d.Name, "error", err)
	}
}

// onItsWay says that an image is being fetched, for as long as it is. So much room must be left when it is there.
func (p *Provider) onItsWay(m machine, room uint64) (provider.Instance, error) {
	progress, err := p.images.ask(m.host, m.image, room)
	if err != nil {
		return provider.Instance{}, err
	}
	return provider.Instance{ID: m.id(), Marks: m.request.Marks, State: provider.Provisioning, Reason: ImageTransfer, Message: progress}, nil
}

// pool returns a pool that can be used, and how much room it has, if that matters.
func (p *Provider) pool(ctx context.Context, c *Conn, name string) (Pool, error) {
	pool, err := c.runningPool(ctx, name)
	if err != nil || !p.policy.CheckRoom {
		return pool, err
	}
	return c.measured(ctx, pool)
}

// measured has libvirt look how much room there is in a pool: else it knows how much there was when it last looked. One that is
// worked on cannot be looked at, and is known well enough.
func (c *Conn) measured(ctx context.Context, pool Pool) (Pool, error) {
	if err := c.Refresh(ctx, pool); err != nil && !code(err, golibvirt.ErrInternalError) {
		return pool, err
	}
	return c.poolInfo(ctx, pool.handle)
}

// seedRoom is more than a seed takes.
const seedRoom = 16 << 20

// room is what a disk of some size and a seed take in a pool, if that matters. It is an error where that is more than there is.
func (p *Provider) room(pool Pool, m machine, disk uint64) (uint64, error) {
	if !p.policy.CheckRoom {
		return 0, nil
	}
	need := disk + seedRoom
	if need > pool.Available {
		return 0, wrong(provider.ErrQuotaExceeded, PoolFull, "pool %s has %d MiB left, and %d are needed", m.host.Pool, pool.Available>>20, need>>20)
	}
	return need, nil
}

// diskSize is that of the request, or else of the image, once it is there.
func (m machine) diskSize(image libvirtxml.StorageVolume) (uint64, error) {
	size := uint64(m.request.Placement.DiskSizeGb) << 30
	if image.Capacity == nil {
		return size, nil
	}
	if size > 0 && size < image.Capacity.Value {
		return 0, wrong(provider.ErrPermanent, provider.UnsupportedField, "placement.diskSizeGb: image %s needs a disk of %d bytes", m.image.Name, image.Capacity.Value)
	}
	return max(size, image.Capacity.Value), nil
}

// define takes the name. If somebody else was faster, the next Create meets what they made.
func (p *Provider) define(ctx context.Context, c *Conn, m machine) (*built, error) {
	guest, err := c.Guests(ctx)
	if err != nil {
		return nil, err
	}
	domainType, err := p.domainType(guest)
	if err != nil {
		return nil, err
	}
	has := marks{Marks: m.request.Marks, Created: time.Now().UTC().Truncate(time.Second)}
	d, err := c.Define(ctx, m.definition(domainType, guest, has.document(p.policy.Namespace)))
	if err != nil {
		return nil, err
	}
	return &built{d, has}, nil
}

// domainType is the first of those that are configured that the host offers.
func (p *Provider) domainType(guest libvirtxml.CapsGuestArch) (string, error) {
	var offered []string
	for _, d := range guest.Domains {
		offered = append(offered, d.Type)
	}
	for _, wanted := range p.config.DomainTypes {
		if slices.Contains(offered, wanted) {
			return wanted, nil
		}
	}
	return "", wrong(provider.ErrPermanent, NoDomainType, "the host offers the domain types %s, and the configuration wants %s",
		strings.Join(offered, ", "), strings.Join(p.config.DomainTypes, ", "))
}

// fill makes the disk and the seed, whatever was there under their names.
func (p *Provider) fill(ctx context.Context, c *Conn, m machine, pool Pool, b *built, disk libvirtxml.StorageVolume) error {
	iso, err := p.config.seedISO(m.request, incarnation(b.domain))
	if err != nil {
		return err
	}
	for _, v := range []libvirtxml.StorageVolume{disk, blankVolume(m.seed(), uint64(len(iso)))} {
		if err := c.DeleteVolume(ctx, pool, v.Name); err != nil {
			return err
		}
		if err := c.CreateVolume(ctx, pool, v); err != nil {
			return err
		}
	}
	return c.Upload(ctx, pool, m.seed(), bytes.NewReader(iso), uint64(len(iso)), p.policy.Budgets.Seed)
}

// startFailure says of an error that has no better reason that it came from a start.
func startFailure(err error) error {
	e, ok := errors.AsType[golibvirt.Error](err)
	if !ok || verdictOn(e).reason != LibvirtError {
		return err
	}
	return wrong(provider.ErrTransient, StartFailed, "the machine does not start: %w", err)
}

// runningPool looks a pool up that has to be usable.
func (c *Conn) runningPool(ctx context.Context, name string) (Pool, error) {
	p, err := c.Pool(ctx, name)
	if err != nil {
		return p, err
	}
	if !p.Running() {
		return p, wrong(provider.ErrTransient, PoolInactive, "pool %s is not running", name)
	}
	return p, nil
}
