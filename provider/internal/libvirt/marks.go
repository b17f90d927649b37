package libvirt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/provider"
)

// marks are what is stored with a domain: the marks of the fleet, and when it was made, which libvirt does not keep.
type marks struct {
	provider.Marks
	Created time.Time
}

// element is the form of marks in the metadata of a domain.
type element struct {
	XMLName xml.Name
	Fleet   string    `xml:"fleet"`
	UID     string    `xml:"uid"`
	Hash    string    `xml:"hash"`
	Created time.Time `xml:"created"`
}

const elementName = "instance"

// errUnreadable is metadata under our namespace that is not what we write.
var errUnreadable = errors.New("the marks cannot be read")

// document is the element with the prefix that libvirt asks for.
func (m marks) document(namespace string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<proxyfleet:%s xmlns:proxyfleet=%q>", elementName, namespace)
	for _, field := range [][2]string{
		{"fleet", m.Fleet}, {"uid", m.UID}, {"hash", m.Hash}, {"created", m.Created.UTC().Format(time.RFC3339)},
	} {
		fmt.Fprintf(&b, "<proxyfleet:%s>", field[0])
		_ = xml.EscapeText(&b, []byte(field[1]))
		fmt.Fprintf(&b, "</proxyfleet:%s>", field[0])
	}
	fmt.Fprintf(&b, "</proxyfleet:%s>", elementName)
	return b.String()
}

// readMarks reads what libvirt returns of the element.
func readMarks(document string) (marks, error) {
	var e element
	if err := xml.Unmarshal([]byte(document), &e); err != nil {
		return marks{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if e.XMLName.Local != elementName {
		return marks{}, fmt.Errorf("%w: they are called %s", errUnreadable, e.XMLName.Local)
	}
	return marks{Marks: provider.Marks{Fleet: e.Fleet, UID: e.UID, Hash: e.Hash}, Created: e.Created}, nil
}
