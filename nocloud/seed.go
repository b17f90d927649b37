package nocloud

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/kdomanski/iso9660"

	"github.com/proxyfleet/fleet/secret"
)

// Seed is what the NoCloud datasource tells a machine. Its disk is an ISO 9660 image with the label cidata; see
// https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html
type Seed struct {
	// InstanceID tells cloud-init whether this is the machine's first boot: 1 to 63 letters, digits, '-', '_' and '.'.
	// Required.
	InstanceID string
	// Hostname is what the machine is to call itself: a DNS label. Defaults to what the image says.
	Hostname string
	// UserData is the user's document, byte for byte. Defaults to an empty one.
	UserData secret.Text
	// VendorData is the provider's document. Where both say something of the same key, the user's counts. Defaults to none.
	VendorData secret.Text
	// NetworkConfig is a document of network configuration version 1 or 2. Where an image has no netplan, cloud-init knows less
	// of version 2; it then takes a match by name for a card of that name. Defaults to none, which is DHCP.
	NetworkConfig string
}

var (
	instanceID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)
	hostname   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
)

// ISO returns the image of the disk: the same bytes for the same seed. They hold its secrets in clear. While the image is
// built, they are also in files of a new directory below [os.TempDir] that nobody else can open. What goes wrong with these is
// an error that names them, and nothing of what is in them; a seed that is valid can have no other.
func (s Seed) ISO() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	image, err := s.write()
	if err != nil {
		return nil, fmt.Errorf("nocloud: the seed cannot be built: %w", err)
	}
	return image, nil
}

// Validate returns all that is wrong with a seed at once.
func (s Seed) Validate() error {
	var problems []error
	if !instanceID.MatchString(s.InstanceID) {
		problems = append(problems, fmt.Errorf("nocloud: InstanceID must be 1 to 63 letters, digits, '-', '_' and '.', not %q", s.InstanceID))
	}
	if s.Hostname != "" && !hostname.MatchString(s.Hostname) {
		problems = append(problems, fmt.Errorf("nocloud: Hostname must be a DNS label, not %q", s.Hostname))
	}
	return errors.Join(problems...)
}

// metaData is a YAML document.
func (s Seed) metaData() string {
	doc := "instance-id: \"" + s.InstanceID + "\"\n"
	if s.Hostname != "" {
		doc += "local-hostname: \"" + s.Hostname + "\"\n"
	}
	return doc
}

func (s Seed) write() (_ []byte, err error) {
	disk, err := iso9660.NewWriter()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, disk.Cleanup()) }()
	for _, file := range []struct {
		name, text string
		optional   bool
	}{
		{name: "meta-data", text: s.metaData()},
		{name: "user-data", text: s.UserData.Reveal()},
		{name: "vendor-data", text: s.VendorData.Reveal(), optional: true},
		{name: "network-config", text: s.NetworkConfig, optional: true},
	} {
		if file.optional && file.text == "" {
			continue
		}
		if err := disk.AddFile(strings.NewReader(file.text), file.name); err != nil {
			return nil, err
		}
	}
	var image bytes.Buffer
	if err := disk.WriteTo(&image, "cidata"); err != nil {
		return nil, err
	}
	forgetOrigin(image.Bytes())
	return image.Bytes(), nil
}

// forgetOrigin removes from the primary volume descriptor where and when the image was made: the system identifier, and the
// times, which become "not specified". The offsets are those of ECMA-119, section 8.4.
func forgetOrigin(image []byte) {
	const descriptor, system, created, modified, effective = 16 * 2048, 8, 813, 830, 864
	copy(image[descriptor+system:], strings.Repeat(" ", 32))
	for _, moment := range []int{created, modified, effective} {
		copy(image[descriptor+moment:], strings.Repeat("0", 16)+"\x00")
	}
}
