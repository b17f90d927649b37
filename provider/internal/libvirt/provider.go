package libvirt

import (
	"cmp"
	"context"
	sha "crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/proxyfleet/fleet/provider"
)

// Policy is in what the providers differ.
type Policy struct {
	// Namespace is that of the marks in the metadata of domains. What has no marks of this namespace is not ours.
	Namespace string
	// AddressSources is the order in which they are asked by default.
	AddressSources []string
	// KeepLogin reads keys and known hosts once, and not at each dial.
	KeepLogin bool
	// PermanentDials are the reasons of a [DialError] that somebody has to see to, and that therefore are permanent.
	PermanentDials []string
	// CheckRoom asks before any volume is made whether the pool has room for the image, if it is not there yet, the disk and the
	// seed together.
	CheckRoom bool
	// Budgets bound what is asked of a host.
	Budgets Budgets
	// Watch is told of each call of libvirt. May be nil.
	Watch Watch
	// WatchDial is told of each dial. May be nil.
	WatchDial func(ctx context.Context, host string) (_ context.Context, done func(error))
	// WatchImage is told of each transfer of an image. May be nil.
	WatchImage func(ctx context.Context, host, image string) (_ context.Context, done func(error))
}

// Provider makes virtual machines. It is a provider.Provider, a provider.Runner and a provider.Delayer; checks are the policy of
// whoever holds it.
type Provider struct {
	fleet  string
	owner  string
	config Config
	policy Policy
	links  map[string]*link
	logins map[string]*Login
	hosts  map[string]HostConfig
	http   *http.Client
	names  locks
	images *transfers
	logger *slog.Logger
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Runner   = (*Provider)(nil)
	_ provider.Delayer  = (*Provider)(nil)
)

// New makes a provider of what a configuration says. It calls nobody and reads no file.
func New(env provider.Environment, config Config, policy Policy) (*Provider, error) {
	config = config.withDefaults(policy.AddressSources)
	if err := config.validate(); err != nil {
		return nil, err
	}
	owner := sha.Sum256([]byte(policy.Namespace + "\x00" + env.Fleet + "\x00" + env.Name))
	p := &Provider{
		fleet: env.Fleet, owner: hex.EncodeToString(owner[:4]), config: config, policy: policy,
		links: map[string]*link{}, logins: map[string]*Login{}, hosts: map[string]HostConfig{},
		http: newHTTPClient(), logger: cmp.Or(env.Logger, slog.New(slog.DiscardHandler)),
	}
	for _, h := range config.Hosts {
		p.hosts[h.Name] = h
		p.logins[h.Name] = &Login{KeyFile: h.KeyFile, KnownHostsFile: h.KnownHostsFile, Keep: policy.KeepLogin}
		p.links[h.Name] = newLink(func(ctx context.Context) (*Conn, error) { return p.Dial(ctx, h.Name) })
	}
	p.images = newTransfers(p.logger, p.transfer)
	return p, nil
}

// Hosts returns the hosts in the order of the configuration.
func (p *Provider) Hosts() []HostConfig { return p.config.Hosts }

// Dial opens a connection to a host that is the caller's own.
func (p *Provider) Dial(ctx context.Context, host string) (*Conn, error) {
	h := p.hosts[host]
	done := func(error) {}
	if p.policy.WatchDial != nil {
		ctx, done = p.policy.WatchDial(ctx, host)
	}
	c, err := Dial(ctx, Host{Name: h.Name, Address: h.Address, User: h.User, Socket: h.Socket, URI: h.URI}, p.logins[host],
		p.policy.Budgets, p.policy.Watch)
	done(err)
	return c, err
}

// Conn returns the connection to a host that all calls share.
func (p *Provider) Conn(ctx context.Context, host string) (*Conn, error) {
	return p.links[host].get(ctx)
}

// Run moves images until ctx ends, and then closes all connections.
func (p *Provider) Run(ctx context.Context) error {
	p.images.run(ctx)
	for _, l := range p.links {
		l.close()
	}
	p.http.CloseIdleConnections()
	return nil
}

// Delays are short: libvirt reads what it wrote, so that Settle is for clocks that differ.
func (p *Provider) Delays() provider.Delays {
	return provider.Delays{Call: 30 * time.Second, Settle: time.Minute}
}

// transfer is one of an image, after which so much room must be left.
func (p *Provider) transfer(h HostConfig, i Image, room uint64) *transfer {
	return &transfer{
		image: i, host: h, room: room, owner: p.owner, http: p.http, most: cmp.Or(p.policy.Budgets.Image, imageTime), watch: p.policy.WatchImage,
		dial: func(ctx context.Context) (*Conn, error) { return p.Dial(ctx, h.Name) },
	}
}

// Plan looks the request up in the configuration.
func (p *Provider) Plan(r provider.Request) (string, error) {
	m, err := p.config.machine("plan", r)
	if err != nil {
		return "", err
	}
	return m.id(), nil
}

// planned is an ID as Plan returns it.
var planned = regexp.MustCompile(`^hosts/([^/]+)/domains/([^/]+)$`)

// place takes an ID apart.
func (p *Provider) place(op, id string) (host, name string, _ error) {
	parts := planned.FindStringSubmatch(id)
	if parts == nil {
		return "", "", &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.NotConfigured, Err: fmt.Errorf("%s is no ID of a machine", id)}
	}
	if _, ok := p.links[parts[1]]; !ok {
		return "", "", &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.NotConfigured,
			Err: fmt.Errorf("host %s of %s is not configured any more", parts[1], id)}
	}
	return parts[1], parts[2], nil
}

// on runs an operation over the connection to a host, and makes its error one of the provider.
func (p *Provider) on(ctx context.Context, op, host string, do func(*Conn) error) error {
	if err := provider.Interrupted(ctx, op); err != nil {
		return err
	}
	c, err := p.Conn(ctx, host)
	if err == nil {
		err = do(c)
	}
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*provider.Error](err); !ok {
		err = fmt.Errorf("host %s: %w", host, err)
	}
	return p.failure(ctx, op, err)
}

// Get asks the host for the domain, its marks, its state, and, while it runs, its address.
func (p *Provider) Get(ctx context.Context, ref provider.Ref) (in provider.Instance, _ error) {
	const op = "get"
	host, name, err := p.place(op, ref.ID)
	if err != nil {
		return in, err
	}
	err = p.on(ctx, op, host, func(c *Conn) error {
		d, m, err := p.find(ctx, c, name, ref.UID)
		if err == nil {
			in, err = p.observe(ctx, c, d, m)
		}
		if code(err, golibvirt.ErrNoDomain) {
			return &provider.Error{Class: provider.ErrNotFound}
		}
		return err
	})
	return in, err
}

// find returns the domain of a name with its marks. One that is not ours is not there.
func (p *Provider) find(ctx context.Context, c *Conn, name, uid string) (Domain, marks, error) {
	d, err := c.Domain(ctx, name)
	if err != nil {
		return d, marks{}, err
	}
	m, err := p.marksOf(ctx, c, d)
	if err != nil {
		return d, m, err
	}
	if m.Fleet != p.fleet || m.UID != uid {
		return d, m, golibvirt.Error{Code: uint32(golibvirt.ErrNoDomain), Message: "the domain is somebody else's"}
	}
	return d, m, nil
}

// marksOf returns the marks of a domain, which are empty where it has none.
func (p *Provider) marksOf(ctx context.Context, c *Conn, d Domain) (marks, error) {
	document, err := c.Metadata(ctx, d, p.policy.Namespace)
	if code(err, golibvirt.ErrNoDomainMetadata) {
		return marks{}, nil
	}
	if err != nil {
		return marks{}, err
	}
	return readMarks(document)
}

// observe says what a domain of ours does.
func (p *Provider) observe(ctx context.Context, c *Conn, d Domain, m marks) (provider.Instance, error) {
	in := provider.Instance{ID: idOf(c.host.Name, d.Name), Incarnation: incarnation(d), Marks: m.Marks, Created: m.Created}
	condition, err := c.State(ctx, d)
	if err != nil {
		return provider.Instance{}, err
	}
	condition.describe(&in)
	if in.State != provider.Running {
		return in, nil
	}
	address, silence, err := c.Address(ctx, d, p.config.AddressSources)
	if err != nil {
		return provider.Instance{}, err
	}
	if !address.IsValid() {
		in.State, in.Reason, in.Message = provider.Provisioning, NoAddress, "no address is known yet: "+silence
		return in, nil
	}
	in.Host = address.String()
	return in, nil
}

// List asks all hosts at once. One that does not answer fails it.
func (p *Provider) List(ctx context.Context) ([]provider.Instance, error) {
	const op = "list"
	perHost, errs := make([][]provider.Instance, len(p.config.Hosts)), make([]error, len(p.config.Hosts))
	var group sync.WaitGroup
	for i, h := range p.config.Hosts {
		group.Go(func() {
			errs[i] = p.on(ctx, op, h.Name, func(c *Conn) (err error) {
				perHost[i], err = p.listHost(ctx, c)
				return err
			})
		})
	}
	group.Wait()
	var all []provider.Instance
	for i := range perHost {
		if errs[i] != nil {
			return nil, errs[i]
		}
		all = append(all, perHost[i]...)
	}
	return all, nil
}

// listHost returns the machines of a host that are ours. One whose marks cannot be read is left out.
func (p *Provider) listHost(ctx context.Context, c *Conn) ([]provider.Instance, error) {
	domains, err := c.Domains(ctx)
	if err != nil {
		return nil, err
	}
	var all []provider.Instance
	for _, d := range domains {
		in, ours, err := p.listDomain(ctx, c, d)
		switch {
		case code(err, golibvirt.ErrNoDomain): // it has gone meanwhile
		case err != nil && (answered(err) || errors.Is(err, errUnreadable)):
			p.logger.WarnContext(ctx, "a domain is left out, because it cannot be read", "host", c.host.Name, "domain", d.Name, "error", err)
		case err != nil:
			return nil, err
		case ours:
			all = append(all, in)
		}
	}
	return all, nil
}

func (p *Provider) listDomain(ctx context.Context, c *Conn, d Domain) (_ provider.Instance, ours bool, _ error) {
	m, err := p.marksOf(ctx, c, d)
	if err != nil || m.Fleet != p.fleet {
		return provider.Instance{}, false, err
	}
	in, err := p.observe(ctx, c, d, m)
	return in, err == nil, err
}

// Delete stops the domain, removes its volumes, and undefines it last, so that what is interrupted is still seen.
func (p *Provider) Delete(ctx context.Context, ref provider.Ref) error {
	const op = "delete"
	host, name, err := p.place(op, ref.ID)
	if err != nil {
		return err
	}
	unlock, err := p.names.lock(ctx, ref.ID)
	if err != nil {
		return p.failure(ctx, op, err)
	}
	defer unlock()
	return p.on(ctx, op, host, func(c *Conn) error {
		d, m, err := p.named(ctx, c, name)
		if code(err, golibvirt.ErrNoDomain) {
			return p.deleteVolumes(ctx, c, p.hosts[host].Pool, name)
		}
		ours := m.Fleet == p.fleet && m.UID == ref.UID
		if err != nil || !ours || cmp.Or(ref.Incarnation, incarnation(d)) != incarnation(d) {
			return err
		}
		return p.delete(ctx, c, d, host)
	})
}

// named returns the domain of a name, whoever's it is.
func (p *Provider) named(ctx context.Context, c *Conn, name string) (Domain, marks, error) {
	d, err := c.Domain(ctx, name)
	if err != nil {
		return d, marks{}, err
	}
	m, err := p.marksOf(ctx, c, d)
	return d, m, err
}

// delete removes a domain and its volumes, which are where its definition says: the configuration may say otherwise by now.
func (p *Provider) delete(ctx context.Context, c *Conn, d Domain, host string) error {
	if err := c.Destroy(ctx, d); err != nil && !code(err, golibvirt.ErrNoDomain) {
		return err
	}
	definition, err := c.Definition(ctx, d)
	if code(err, golibvirt.ErrNoDomain) {
		return p.deleteLeft(ctx, c, host, d.Name)
	}
	if err != nil {
		return err
	}
	if err := p.deleteVolumes(ctx, c, poolOf(definition, p.hosts[host].Pool), d.Name); err != nil {
		return err
	}
	if err := c.Undefine(ctx, d); err != nil && !code(err, golibvirt.ErrNoDomain) {
		return err
	}
	return nil
}

// deleteLeft removes the volumes of a domain that went while it was being deleted, unless its name has another one by now: then they
// are that one's.
func (p *Provider) deleteLeft(ctx context.Context, c *Conn, host, name string) error {
	if _, err := c.Domain(ctx, name); !code(err, golibvirt.ErrNoDomain) {
		return err
	}
	return p.deleteVolumes(ctx, c, p.hosts[host].Pool, name)
}

// deleteVolumes removes the disk and the seed of a machine from a pool.
func (p *Provider) deleteVolumes(ctx context.Context, c *Conn, from, name string) error {
	pool, err := c.Pool(ctx, from)
	if err != nil {
		return err
	}
	for _, volume := range []string{diskOf(name), seedOf(name)} {
		if err := c.DeleteVolume(ctx, pool, volume); err != nil {
			return err
		}
	}
	return nil
}
