package libvirt

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// Pool is a storage pool and how full it is.
type Pool struct {
	handle    golibvirt.StoragePool
	State     golibvirt.StoragePoolState
	Capacity  uint64
	Available uint64
}

// Running says whether volumes can be made in the pool.
func (p Pool) Running() bool { return p.State == golibvirt.StoragePoolRunning }

// Pool looks a pool up.
func (c *Conn) Pool(ctx context.Context, name string) (Pool, error) {
	handle, err := call(ctx, c, Call{RPC: "StoragePoolLookupByName", Pool: name}, func(l *golibvirt.Libvirt) (golibvirt.StoragePool, error) {
		return l.StoragePoolLookupByName(name)
	})
	if err != nil {
		return Pool{}, err
	}
	return c.poolInfo(ctx, handle)
}

// poolInfo says how full a pool is, as libvirt knew when it last looked.
func (c *Conn) poolInfo(ctx context.Context, handle golibvirt.StoragePool) (Pool, error) {
	return call(ctx, c, Call{RPC: "StoragePoolGetInfo", Pool: handle.Name}, func(l *golibvirt.Libvirt) (Pool, error) {
		state, capacity, _, available, err := l.StoragePoolGetInfo(handle)
		return Pool{handle, golibvirt.StoragePoolState(state), capacity, available}, err
	})
}

// Refresh has libvirt look at what is in a pool.
func (c *Conn) Refresh(ctx context.Context, p Pool) error {
	return act(ctx, c, Call{RPC: "StoragePoolRefresh", Pool: p.handle.Name}, func(l *golibvirt.Libvirt) error {
		return l.StoragePoolRefresh(p.handle, 0)
	})
}

// Volumes returns the names of all volumes in a pool.
func (c *Conn) Volumes(ctx context.Context, p Pool) ([]string, error) {
	return call(ctx, c, Call{RPC: "StoragePoolListAllVolumes", Pool: p.handle.Name}, func(l *golibvirt.Libvirt) ([]string, error) {
		all, _, err := l.StoragePoolListAllVolumes(p.handle, 1, 0)
		var names []string
		for _, volume := range all {
			names = append(names, volume.Name)
		}
		return names, err
	})
}

// Volume returns what is known of a volume.
func (c *Conn) Volume(ctx context.Context, p Pool, name string) (libvirtxml.StorageVolume, error) {
	var v libvirtxml.StorageVolume
	handle, err := c.volume(ctx, p, name)
	if err != nil {
		return v, err
	}
	document, err := call(ctx, c, Call{RPC: "StorageVolGetXMLDesc", Pool: p.handle.Name, Volume: name}, func(l *golibvirt.Libvirt) (string, error) {
		return l.StorageVolGetXMLDesc(handle, 0)
	})
	if err != nil {
		return v, err
	}
	if err := xml.Unmarshal([]byte(document), &v); err != nil {
		return v, fmt.Errorf("volume %s cannot be read: %w", name, err)
	}
	return v, nil
}

func (c *Conn) volume(ctx context.Context, p Pool, name string) (golibvirt.StorageVol, error) {
	return call(ctx, c, Call{RPC: "StorageVolLookupByName", Pool: p.handle.Name, Volume: name}, func(l *golibvirt.Libvirt) (golibvirt.StorageVol, error) {
		return l.StorageVolLookupByName(p.handle, name)
	})
}

// CreateVolume makes a volume whose name is free.
func (c *Conn) CreateVolume(ctx context.Context, p Pool, v libvirtxml.StorageVolume) error {
	document, err := v.Marshal()
	if err != nil {
		return err
	}
	return act(ctx, c, Call{RPC: "StorageVolCreateXML", Pool: p.handle.Name, Volume: v.Name}, func(l *golibvirt.Libvirt) error {
		_, err := l.StorageVolCreateXML(p.handle, document, 0)
		return err
	})
}

// DeleteVolume removes a volume. One that is not there is gone.
func (c *Conn) DeleteVolume(ctx context.Context, p Pool, name string) error {
	handle, err := c.volume(ctx, p, name)
	if err == nil {
		err = act(ctx, c, Call{RPC: "StorageVolDelete", Pool: p.handle.Name, Volume: name}, func(l *golibvirt.Libvirt) error {
			return l.StorageVolDelete(handle, 0)
		})
	}
	if code(err, golibvirt.ErrNoStorageVol) {
		return nil
	}
	return err
}

// Upload writes size bytes from r into a volume, within a budget if it has one. Libvirt takes fewer, or more than fit, without a
// word; so both are errors here. A reader that blocks must end with ctx.
func (c *Conn) Upload(ctx context.Context, p Pool, name string, r io.Reader, size uint64, budget time.Duration) error {
	handle, err := c.volume(ctx, p, name)
	if err != nil {
		return err
	}
	exact := &exactReader{r: r, left: size}
	what := Call{RPC: "StorageVolUpload", Pool: p.handle.Name, Volume: name, budget: budget}
	return act(ctx, c, what, func(l *golibvirt.Libvirt) error {
		return l.StorageVolUpload(handle, exact, 0, size, 0)
	})
}

// exactReader fails unless it reads as many bytes as were announced, and no more.
type exactReader struct {
	r    io.Reader
	left uint64
}

func (e *exactReader) Read(b []byte) (int, error) {
	n, err := e.r.Read(b)
	if uint64(n) > e.left {
		return 0, fmt.Errorf("more bytes came than were announced")
	}
	e.left -= uint64(n)
	if err == io.EOF && e.left > 0 {
		return n, fmt.Errorf("%d bytes are missing: %w", e.left, io.ErrUnexpectedEOF)
	}
	return n, err
}

// blankVolume is a raw volume of some bytes, to be written to.
func blankVolume(name string, size uint64) libvirtxml.StorageVolume {
	return libvirtxml.StorageVolume{
		Name:       name,
		Allocation: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: 0},
		Capacity:   &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: size},
		Target:     &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}},
	}
}

// overlay is a volume that holds what differs from an image.
func overlay(name string, size uint64, image libvirtxml.StorageVolume) libvirtxml.StorageVolume {
	return libvirtxml.StorageVolume{
		Name:       name,
		Allocation: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: 0},
		Capacity:   &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: size},
		Target:     &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "qcow2"}},
		BackingStore: &libvirtxml.StorageVolumeBackingStore{
			Path:   image.Target.Path,
			Format: &libvirtxml.StorageVolumeTargetFormat{Type: formatOf(image)},
		},
	}
}

// formatOf returns what libvirt found a volume to be.
func formatOf(v libvirtxml.StorageVolume) string {
	if v.Target == nil || v.Target.Format == nil || v.Target.Format.Type == "" {
		return "raw"
	}
	return v.Target.Format.Type
}
