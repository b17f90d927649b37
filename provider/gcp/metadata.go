package gcp

import (
	"fmt"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/proxyfleet/fleet/nocloud"
	"github.com/proxyfleet/fleet/provider"
)

// What Compute Engine takes as metadata of one machine, in bytes.
const (
	maxValue    = 256 << 10
	maxMetadata = 512 << 10
)

// proxy is what a machine is to run.
func (s settings) proxy(r provider.Request) nocloud.Proxy {
	return nocloud.Proxy{
		Name: r.Name, Port: r.Port,
		Username: r.Credentials.Username, Password: r.Credentials.Password,
		AllowedClients: s.AllowedClients, AllowedDestinations: s.AllowedDestinations,
	}
}

// metadata tells a machine what to do at its first boot: to set up the proxy, and whatever the request asks for beside. Compute
// Engine has no place for vendor-data, so both are one document of user-data. Not every image has cloud-init to read that, as
// Google's of Debian have not: there the guest agent runs a startup script instead, which sets up the proxy.
func (s settings) metadata(r provider.Request) (*computepb.Metadata, error) {
	setup, err := nocloud.VendorData(s.proxy(r))
	if err != nil {
		return nil, err
	}
	return metadataOf([]entry{
		{"startup-script", withoutCloudInit + setup.Reveal() + onceDone},
		{"user-data", nocloud.Combine(setup, r.CloudInit).Reveal()},
	})
}

const (
	withoutCloudInit = `#!/bin/sh
# For images without cloud-init, which does the same from user-data where it is. Runs at each boot, until it was done once.
if command -v cloud-init >/dev/null || [ -e /var/lib/proxyfleet.done ]; then
	exit 0
fi
`
	onceDone = `
touch /var/lib/proxyfleet.done
`
)

// entry is one value of metadata.
type entry struct{ key, value string }

// oversize tells of a document that is too large. One of usual size is not looked at: to build it hashes the password, and a
// request is judged at every pass.
func (s settings) oversize(r provider.Request) error {
	const usual = 64 << 10
	if len(r.CloudInit.Reveal()) <= usual {
		return nil
	}
	_, err := s.metadata(r)
	return err
}

// metadataOf is metadata that Compute Engine takes, or an error that says what is too large for it.
func metadataOf(entries []entry) (*computepb.Metadata, error) {
	m := &computepb.Metadata{}
	total := 0
	for _, e := range entries {
		if len(e.value) > maxValue {
			return nil, fmt.Errorf("cloudInit: with what sets up the proxy it has %d bytes, and Compute Engine takes %d", len(e.value), maxValue)
		}
		total += len(e.key) + len(e.value)
		m.Items = append(m.Items, &computepb.Items{Key: new(e.key), Value: new(e.value)})
	}
	if total > maxMetadata {
		return nil, fmt.Errorf("cloudInit: all metadata has %d bytes, and Compute Engine takes %d", total, maxMetadata)
	}
	return m, nil
}
