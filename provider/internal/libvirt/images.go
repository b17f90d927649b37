package libvirt

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// An image lies in a pool under a name of its own for each transfer, and a second, empty volume says that it is complete. So two
// transfers never write into one volume, and what a dead one left is told from what is complete.
const (
	imagePrefix = "proxyfleet-image-"
	complete    = ".complete"
)

// imageStem is how the volumes of an image begin: of all transfers.
func imageStem(i Image) string { return imagePrefix + i.SHA256[:24] + "-" }

// newVolume is the name of a volume for one transfer of an image by an owner.
func newVolume(i Image, owner string) string {
	return imageStem(i) + owner + "-" + strings.ToLower(rand.Text()[:8])
}

// findImage returns the volume of an image that is complete, or "".
func findImage(i Image, volumes []string) string {
	slices.Sort(volumes)
	for _, name := range volumes {
		if strings.HasPrefix(name, imageStem(i)) && !strings.HasSuffix(name, complete) && slices.Contains(volumes, name+complete) {
			return name
		}
	}
	return ""
}

// leftovers returns the volumes that an owner's earlier transfers of an image left unfinished.
func leftovers(i Image, owner string, volumes []string) []string {
	var all []string
	for _, name := range volumes {
		stem, isMarker := strings.CutSuffix(name, complete)
		if !strings.HasPrefix(name, imageStem(i)+owner+"-") {
			continue
		}
		if isMarker && !slices.Contains(volumes, stem) || !isMarker && !slices.Contains(volumes, name+complete) {
			all = append(all, name)
		}
	}
	return all
}

// image returns the volume of an image that is complete in a pool, or false.
func (c *Conn) image(ctx context.Context, p Pool, i Image) (libvirtxml.StorageVolume, bool, error) {
	volumes, err := c.Volumes(ctx, p)
	if err != nil {
		return libvirtxml.StorageVolume{}, false, err
	}
	name := findImage(i, volumes)
	if name == "" {
		return libvirtxml.StorageVolume{}, false, nil
	}
	v, err := c.Volume(ctx, p, name)
	return v, err == nil, err
}
