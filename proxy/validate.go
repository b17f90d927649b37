package proxy

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// FieldError is one problem of one field.
type FieldError struct {
	// Field is the path of the field, such as spec.endpoint.port.
	Field string
	// Problem says what is wrong and what would be right.
	Problem string
}

// Error returns the field and its problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// ErrImmutable is in the tree of the error of an edit that [ValidateUpdate] refuses.
var ErrImmutable = errors.New("field cannot change")

// Limits of a spec.
const (
	maxProvider       = 63
	maxAttributes     = 64
	maxAttributeKey   = 63
	maxAttributeValue = 256
	maxHost           = 253
	maxReference      = 253
	maxURL            = 2048
	minInterval       = Duration(time.Second)
)

var (
	label     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	// hostName is a DNS name or an IPv4 address.
	hostName  = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_.])?$`)
	zone      = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)
	secretKey = regexp.MustCompile(`^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$`)
)

// ValidateKey says whether namespace and name are DNS-1123 labels. It returns all problems, joined.
func ValidateKey(k Key) error {
	var p problems
	p.name("metadata.namespace", k.Namespace)
	p.name("metadata.name", k.Name)
	return p.join()
}

// Validate says what is wrong with a spec: a [FieldError] for each problem, joined.
func Validate(s Spec) error {
	var p problems
	switch s.Mode {
	case "", Managed:
		p.managed(s)
	case External:
		p.external(s)
	default:
		p.add("spec.mode", "must be Managed or External, not %q", s.Mode)
	}
	p.credentials(s.Credentials)
	p.attributes(s.Attributes)
	if s.MaxLeases < 0 {
		p.add("spec.maxLeases", "must be at least 1, or left out for 10, not %d", s.MaxLeases)
	}
	p.healthCheck("spec.healthCheck", s.HealthCheck)
	return p.join()
}

// ValidateUpdate says whether a valid spec may become another. Its error has a [FieldError] and [ErrImmutable] in its tree.
func ValidateUpdate(old, updated Spec) error {
	was, is := old.Canonical().Mode, updated.Canonical().Mode
	if was == is {
		return nil
	}
	return fmt.Errorf("%w (%w)", &FieldError{"spec.mode",
		fmt.Sprintf("cannot change from %s to %s; delete the proxy and declare it anew", was, is)}, ErrImmutable)
}

// ValidateHealthCheck says what is wrong with a health check whose path is given, as [Validate] does.
func ValidateHealthCheck(field string, h HealthCheck) error {
	var p problems
	p.healthCheck(field, h)
	return p.join()
}

// problems collects what is wrong.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, &FieldError{field, fmt.Sprintf(format, args...)})
}

func (p *problems) join() error { return errors.Join(*p...) }

func (p *problems) name(field, s string) {
	if !label.MatchString(s) {
		p.add(field, "must be 1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit, not %q", s)
	}
}

// text refuses what no document can hold: a store would keep another text, and the proxy would look edited.
func (p *problems) text(field, s string) {
	if !utf8.ValidString(s) {
		p.add(field, "must be UTF-8")
	}
}

func (p *problems) managed(s Spec) {
	if s.Provider == "" {
		p.add("spec.provider", "is required: the name of a configured provider")
	}
	if utf8.RuneCountInString(s.Provider) > maxProvider {
		p.add("spec.provider", "must be at most %d characters long", maxProvider)
	}
	p.text("spec.provider", s.Provider)
	p.text("spec.placement.zone", s.Placement.Zone)
	p.text("spec.placement.machineType", s.Placement.MachineType)
	p.text("spec.placement.image", s.Placement.Image)
	if s.Placement.DiskSizeGb < 0 {
		p.add("spec.placement.diskSizeGb", "must be at least 1, not %d", s.Placement.DiskSizeGb)
	}
	if s.Port < 0 || s.Port > 65535 {
		p.add("spec.port", "must be 1 to 65535, or left out for 3128, not %d", s.Port)
	}
	if s.Endpoint != nil {
		p.add("spec.endpoint", "is for mode External only: a Managed proxy gets its endpoint from its provider")
	}
	p.cloudInit(s.CloudInit)
}

func (p *problems) external(s Spec) {
	p.managedOnly("spec.provider", s.Provider != "")
	p.managedOnly("spec.placement", s.Placement != Placement{})
	p.managedOnly("spec.cloudInit", s.CloudInit != nil)
	p.managedOnly("spec.port", s.Port != 0)
	if s.Endpoint == nil {
		p.add("spec.endpoint", "is required in mode External")
		return
	}
	p.endpoint(*s.Endpoint)
}

func (p *problems) managedOnly(field string, set bool) {
	if set {
		p.add(field, "is for mode Managed only: an External proxy exists already")
	}
}

func (p *problems) endpoint(e Endpoint) {
	if !slices.Contains([]Scheme{HTTP, HTTPS, SOCKS5}, e.Scheme) {
		p.add("spec.endpoint.scheme", "must be http, https or socks5, not %q", e.Scheme)
	}
	if !isHost(e.Host) {
		p.add("spec.endpoint.host", "must be a host name or an IP address, without scheme, user, port or brackets")
	}
	if e.Port < 1 || e.Port > 65535 {
		p.add("spec.endpoint.port", "must be 1 to 65535, not %d", e.Port)
	}
	if e.TLS != nil && e.Scheme != HTTPS {
		p.add("spec.endpoint.tls", "is for scheme https only")
	}
	p.tls("spec.endpoint.tls", e.TLS)
}

func (p *problems) cloudInit(c *CloudInit) {
	if c == nil {
		return
	}
	if (c.Inline == "") == (c.SecretRef == nil) {
		p.add("spec.cloudInit", "must have exactly one of inline and secretRef")
	}
	p.text("spec.cloudInit.inline", c.Inline)
	if c.SecretRef != nil {
		p.secretName("spec.cloudInit.secretRef.name", c.SecretRef.Name)
		p.secretKey("spec.cloudInit.secretRef.key", c.SecretRef.Key)
	}
}

func (p *problems) credentials(c *Credentials) {
	if c == nil {
		return
	}
	p.secretName("spec.credentials.secretRef.name", c.SecretRef.Name)
	if c.SecretRef.UsernameKey != "" {
		p.secretKey("spec.credentials.secretRef.usernameKey", c.SecretRef.UsernameKey)
	}
	if c.SecretRef.PasswordKey != "" {
		p.secretKey("spec.credentials.secretRef.passwordKey", c.SecretRef.PasswordKey)
	}
}

// secretName allows DNS-1123 subdomains, as Kubernetes does for Secrets.
func (p *problems) secretName(field, s string) {
	if len(s) > maxReference || !subdomain.MatchString(s) {
		p.add(field, "must be the name of a Secret: lower-case letters, digits, '-' and '.', not %q", s)
	}
}

func (p *problems) secretKey(field, s string) {
	if len(s) > maxReference || !secretKey.MatchString(s) {
		p.add(field, "must be a key of the Secret: letters, digits, '-', '_' and '.', not beginning with '..', not %q", s)
	}
}

func (p *problems) attributes(attributes map[string]string) {
	if len(attributes) > maxAttributes {
		p.add("spec.attributes", "must be at most %d, not %d", maxAttributes, len(attributes))
	}
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		if k == "" || utf8.RuneCountInString(k) > maxAttributeKey {
			p.add("spec.attributes", "must have keys of 1 to %d characters, not %q", maxAttributeKey, k)
		}
		if utf8.RuneCountInString(attributes[k]) > maxAttributeValue {
			p.add("spec.attributes."+k, "must be at most %d characters long", maxAttributeValue)
		}
		p.text("spec.attributes", k)
		p.text("spec.attributes."+k, attributes[k])
	}
}

func (p *problems) healthCheck(field string, h HealthCheck) {
	if h.URL != "" {
		p.url(field+".url", h.URL)
	}
	if h.Interval != 0 && h.Interval < minInterval {
		p.add(field+".interval", "must be at least %v, not %v", minInterval, h.Interval)
	}
	if h.Timeout < 0 {
		p.add(field+".timeout", "must be positive, not %v", h.Timeout)
	}
	if h.SuccessThreshold < 0 {
		p.add(field+".successThreshold", "must be at least 1, or left out, not %d", h.SuccessThreshold)
	}
	if h.FailureThreshold < 0 {
		p.add(field+".failureThreshold", "must be at least 1, or left out, not %d", h.FailureThreshold)
	}
	for _, code := range h.ExpectedStatus {
		if code < 200 || code > 599 {
			p.add(field+".expectedStatus", "must be final HTTP status codes, 200 to 599, not %d", code)
		}
	}
	p.tls(field+".tls", h.TLS)
}

// url refuses what no probe can request. Nothing of the URL is quoted: it may hold a password by mistake.
func (p *problems) url(field, s string) {
	if utf8.RuneCountInString(s) > maxURL {
		p.add(field, "must be at most %d characters long", maxURL)
		return
	}
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		p.add(field, "must hold no blanks and no control characters: write a blank as %%20")
		return
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || !utf8.ValidString(s) || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		p.add(field, "must be an absolute http or https URL, such as https://www.gstatic.com/generate_204")
	case u.User != nil:
		p.add(field, "must not hold a user or password")
	case !isHost(u.Hostname()):
		p.add(field, "must have as its host an IP address or a name in ASCII of at most 253 bytes: write others in their xn-- form")
	case u.Port() != "" && !isPort(u.Port()):
		p.add(field, "must have a port from 1 to 65535, or none for that of its scheme")
	}
}

// isHost says whether a text is a DNS name in ASCII or an IP address, without brackets. The schema says it with isIP, which
// knows neither zones nor IPv4 addresses in IPv6.
func isHost(s string) bool {
	if len(s) > maxHost {
		return false
	}
	if hostName.MatchString(s) {
		return true
	}
	addr, err := netip.ParseAddr(s)
	return err == nil && zone.MatchString(addr.Zone())
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func (p *problems) tls(field string, t *TLS) {
	if t == nil {
		return
	}
	if t.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(t.CA)) {
		p.add(field+".ca", "must hold at least one certificate that can be read, as PEM (-----BEGIN CERTIFICATE-----)")
	}
	p.text(field+".ca", t.CA)
	p.text(field+".serverName", t.ServerName)
	if t.CA != "" && t.InsecureSkipVerify {
		p.add(field+".insecureSkipVerify", "must not be set beside ca: one of them would have no effect")
	}
}
