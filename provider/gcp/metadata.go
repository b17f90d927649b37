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

// metadata tells cloud-init what to do at the first boot: to set up the proxy, and whatever the request asks for beside. Compute
// Engine has no place for vendor-data, so both are one document.
func (s settings) metadata(r provider.Request) (*computepb.Metadata, error) {
	setup, err := nocloud.VendorData(s.proxy(r))
	if err != nil {
		return nil, err
	}
	document := nocloud.Combine(setup, r.CloudInit)
	return metadataOf(map[string]string{"user-data": document.Reveal()})
}

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
func metadataOf(values map[string]string) (*computepb.Metadata, error) {
	m := &computepb.Metadata{}
	total := 0
	for key, value := range values {
		if len(value) > maxValue {
			return nil, fmt.Errorf("cloudInit: with what sets up the proxy it has %d bytes, and Compute Engine takes %d", len(value), maxValue)
		}
		total += len(key) + len(value)
		m.Items = append(m.Items, &computepb.Items{Key: new(key), Value: new(value)})
	}
	if total > maxMetadata {
		return nil, fmt.Errorf("cloudInit: all metadata has %d bytes, and Compute Engine takes %d", total, maxMetadata)
	}
	return m, nil
}
