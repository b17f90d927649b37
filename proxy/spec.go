package proxy

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// +kubebuilder:validation:Enum=Managed;External;""

// Mode says where a proxy comes from.
type Mode string

// The modes.
const (
	// Managed proxies are made, replaced and deleted by the fleet.
	Managed Mode = "Managed"
	// External proxies exist already; the fleet only probes and leases them.
	External Mode = "External"
)

// The comments that begin with a plus sign are the schema of the Kubernetes object, for controller-gen. It refuses what
// Validate and ValidateUpdate refuse, and the table in testdata/specs.yaml holds it to that. Zero and "" mean here what
// they mean to Go, a field that is left out.
//
// +kubebuilder:validation:XValidation:rule="self.mode == 'External' || has(self.provider) && self.provider != ''",message="is required: the name of a configured provider",fieldPath=".provider"
// +kubebuilder:validation:XValidation:rule="self.mode == 'External' || !has(self.endpoint)",message="is for mode External only: a Managed proxy gets its endpoint from its provider",fieldPath=".endpoint"
// +kubebuilder:validation:XValidation:rule="self.mode != 'External' || has(self.endpoint)",message="is required in mode External",fieldPath=".endpoint"
// +kubebuilder:validation:XValidation:rule="self.mode != 'External' || !has(self.provider) || self.provider == ''",message="is for mode Managed only: an External proxy exists already",fieldPath=".provider"
// +kubebuilder:validation:XValidation:rule="self.mode != 'External' || !has(self.placement) || self.placement.?zone.orValue('') == '' && self.placement.?machineType.orValue('') == '' && self.placement.?image.orValue('') == '' && self.placement.?diskSizeGb.orValue(0) == 0",message="is for mode Managed only: an External proxy exists already",fieldPath=".placement"
// +kubebuilder:validation:XValidation:rule="self.mode != 'External' || !has(self.cloudInit)",message="is for mode Managed only: an External proxy exists already",fieldPath=".cloudInit"
// +kubebuilder:validation:XValidation:rule="self.mode != 'External' || !has(self.port) || self.port == 0",message="is for mode Managed only: an External proxy exists already",fieldPath=".port"

// Spec is what a proxy is declared to be. A field that is left out has the default that its comment gives.
type Spec struct {
	// Mode cannot be changed after creation. Defaults to Managed.
	//
	// +kubebuilder:default=Managed
	// +kubebuilder:validation:XValidation:rule="(self == 'External') == (oldSelf == 'External')",message="cannot change; delete the proxy and declare it anew"
	Mode Mode `json:"mode,omitempty"`
	// Provider is the name of a configured provider. Managed only, and required there. An edit replaces the instance.
	//
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`
	// Placement says where and on what the instance runs. Managed only; each provider says what it needs.
	Placement Placement `json:"placement,omitzero"`
	// CloudInit is the user data of the instance. Managed only.
	CloudInit *CloudInit `json:"cloudInit,omitempty"`
	// Credentials name the user and password that the proxy asks for. Defaults to none.
	Credentials *Credentials `json:"credentials,omitempty"`
	// Port is where the proxy of an instance listens. Managed only. Defaults to 3128.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Endpoint is where an External proxy listens; required there and forbidden elsewhere.
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// Attributes are what selectors match: at most 64 of them.
	//
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != '' && size(k) <= 63)",message="must have keys of 1 to 63 characters"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(self[k]) <= 256)",message="must have values of at most 256 characters"
	Attributes map[string]string `json:"attributes,omitempty"`
	// MaxLeases is how many leases may be open at once. Defaults to 10.
	//
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	MaxLeases int32 `json:"maxLeases,omitempty"`
	// HealthCheck says how the proxy is probed. Its fields default to the fleet's.
	HealthCheck HealthCheck `json:"healthCheck,omitzero"`
}

// Placement says where and on what an instance runs. A provider refuses a field that it cannot honour.
type Placement struct {
	// Zone is a Compute Engine zone, or the name of a libvirt host.
	Zone string `json:"zone,omitempty"`
	// MachineType is the provider's name for the size of a machine.
	MachineType string `json:"machineType,omitempty"`
	// Image is what the machine boots.
	Image string `json:"image,omitempty"`
	// DiskSizeGb is the size of the boot disk in GiB.
	//
	// +kubebuilder:validation:Minimum=0
	DiskSizeGb int64 `json:"diskSizeGb,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="(has(self.inline) && self.inline != '') != has(self.secretRef)",message="must have exactly one of inline and secretRef"

// CloudInit holds user data, or says where it is. Exactly one of its fields is set.
type CloudInit struct {
	// Inline is the user data itself. Everybody who may read the proxy may read it.
	Inline string `json:"inline,omitempty"`
	// SecretRef names a Secret in the proxy's namespace that is labelled crawl.example.com/cloud-init: "true".
	SecretRef *SecretKeyRef `json:"secretRef,omitempty"`
}

// SecretKeyRef names one value of a Secret.
type SecretKeyRef struct {
	// Name is that of the Secret.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
	// Key is that of the value.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*)$`
	Key string `json:"key"`
}

// Credentials say where the user and password of a proxy are.
type Credentials struct {
	// SecretRef names a Secret in the proxy's namespace that is labelled crawl.example.com/credentials: "true".
	SecretRef CredentialsRef `json:"secretRef"`
}

// CredentialsRef names the two values of a Secret that are a user and a password.
type CredentialsRef struct {
	// Name is that of the Secret.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
	// UsernameKey defaults to username, as in Secrets of type kubernetes.io/basic-auth.
	//
	// +kubebuilder:default=username
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*)?$`
	UsernameKey string `json:"usernameKey,omitempty"`
	// PasswordKey defaults to password.
	//
	// +kubebuilder:default=password
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*)?$`
	PasswordKey string `json:"passwordKey,omitempty"`
}

// +kubebuilder:validation:Enum=http;https;socks5

// Scheme is how a client speaks to a proxy.
type Scheme string

// The schemes of a proxy.
const (
	HTTP   Scheme = "http"
	HTTPS  Scheme = "https"
	SOCKS5 Scheme = "socks5"
)

// A rule that stands here and not at its field does not have the value quoted, which may hold a password by mistake.
//
// +kubebuilder:validation:XValidation:rule=`self.host.matches('^[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_.])?$') || self.host.matches('^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?$') && isIP(self.host.split('%')[0].lowerAscii().replace(':ffff:', ':fffe:'))`,message="must be a host name or an IP address, without scheme, user, port or brackets",fieldPath=".host"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || self.scheme == 'https'",message="is for scheme https only",fieldPath=".tls"

// Endpoint is where an External proxy listens.
type Endpoint struct {
	Scheme Scheme `json:"scheme"`
	// Host is a DNS name in ASCII or an IP address, without brackets.
	//
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// TLS is how the certificate of an https proxy is verified. https only. Defaults to the system's roots.
	TLS *TLS `json:"tls,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="self.?ca.orValue('') == '' || !self.?insecureSkipVerify.orValue(false)",message="must not be set beside ca: one of them would have no effect",fieldPath=".insecureSkipVerify"

// TLS says how a server's certificate is verified.
type TLS struct {
	// CA holds PEM certificates that are trusted instead of the system's roots.
	//
	// +kubebuilder:validation:Pattern=`^$|-----BEGIN CERTIFICATE-----`
	CA string `json:"ca,omitempty"`
	// ServerName is the name that the certificate must bear. Defaults to the host that is dialled.
	ServerName string `json:"serverName,omitempty"`
	// InsecureSkipVerify accepts every certificate.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// These speak of the URL, and stand here for the same reason.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.url) || !self.url.matches(r'[\pZ\p{Cc}]')`,message="must hold no blanks and no control characters: write a blank as %20",fieldPath=".url"
// +kubebuilder:validation:XValidation:rule=`self.?url.orValue('') == '' || isURL(self.url.split('#')[0]) && self.url.matches('^(?i:https?)://[^#]*(#([^%]|%[0-9A-Fa-f]{2})*)?$') && url(self.url.split('#')[0]).getHostname() != ''`,message="must be an absolute http or https URL, such as https://www.gstatic.com/generate_204",fieldPath=".url"
// +kubebuilder:validation:XValidation:rule=`!has(self.url) || !self.url.matches('^[^/?#]*//[^/?#]*@')`,message="must not hold a user or password",fieldPath=".url"
// +kubebuilder:validation:XValidation:rule=`!has(self.url) || !isURL(self.url.split('#')[0]) || [url(self.url.split('#')[0]).getHostname()].all(h, h == '' || size(h) <= 253 && (h.matches('^[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_.])?$') || h.matches('^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?$') && isIP(h.split('%')[0].lowerAscii().replace(':ffff:', ':fffe:'))))`,message="must have as its host an IP address or a name in ASCII of at most 253 bytes: write others in their xn-- form",fieldPath=".url"
// +kubebuilder:validation:XValidation:rule=`!has(self.url) || !isURL(self.url.split('#')[0]) || [url(self.url.split('#')[0]).getPort()].all(p, p == '' || p.matches('^0*[1-9][0-9]{0,4}$') && int(p) <= 65535)`,message="must have a port from 1 to 65535, or none for that of its scheme",fieldPath=".url"

// HealthCheck says how a proxy is probed: a request for URL through the proxy.
type HealthCheck struct {
	// URL is http or https. Defaults to https://www.gstatic.com/generate_204.
	//
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
	// Interval is the time from one probe to the next, at least 1s. Defaults to 30s.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s')",message="must be a duration of at least 1s, such as 30s or 1m30s"
	Interval Duration `json:"interval,omitempty"`
	// Timeout bounds the whole probe. Defaults to 10s.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a positive duration, such as 10s"
	Timeout Duration `json:"timeout,omitempty"`
	// SuccessThreshold is how many successes in a row make a proxy healthy. Defaults to 1.
	//
	// +kubebuilder:validation:Minimum=0
	SuccessThreshold int32 `json:"successThreshold,omitempty"`
	// FailureThreshold is how many failures in a row make it unhealthy. Defaults to 3.
	//
	// +kubebuilder:validation:Minimum=0
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
	// ExpectedStatus are the status codes that count as success. Defaults to 204.
	//
	// +kubebuilder:validation:items:Minimum=200
	// +kubebuilder:validation:items:Maximum=599
	ExpectedStatus []int32 `json:"expectedStatus,omitempty"`
	// TLS is how the target's certificate is verified, inside the tunnel. An empty one stands for the system's roots
	// whatever the fleet has. Defaults to the system's roots.
	TLS *TLS `json:"tls,omitempty"`
}

// Canonical returns the spec with its fixed defaults filled in and empty things left out, so that two specs that mean the
// same are equal. The health check keeps what was declared: its defaults are the fleet's and may change under it.
func (s Spec) Canonical() Spec {
	c := s.Clone()
	c.Mode = cmp.Or(c.Mode, Managed)
	c.MaxLeases = cmp.Or(c.MaxLeases, 10)
	if c.Mode == Managed {
		c.Port = cmp.Or(c.Port, 3128)
	}
	if c.Credentials != nil {
		ref := &c.Credentials.SecretRef
		ref.UsernameKey = cmp.Or(ref.UsernameKey, "username")
		ref.PasswordKey = cmp.Or(ref.PasswordKey, "password")
	}
	if c.Endpoint != nil && c.Endpoint.TLS != nil && *c.Endpoint.TLS == (TLS{}) {
		c.Endpoint.TLS = nil
	}
	if len(c.Attributes) == 0 {
		c.Attributes = nil
	}
	if len(c.HealthCheck.ExpectedStatus) == 0 {
		c.HealthCheck.ExpectedStatus = nil
	}
	return c
}

// WithDefaults fills what h leaves out from the fleet's defaults, and what they leave out from the built-in ones.
func (h HealthCheck) WithDefaults(fleet HealthCheck) HealthCheck {
	return h.or(fleet).or(HealthCheck{
		URL:              "https://www.gstatic.com/generate_204",
		Interval:         Duration(30 * time.Second),
		Timeout:          Duration(10 * time.Second),
		SuccessThreshold: 1,
		FailureThreshold: 3,
		ExpectedStatus:   []int32{204},
	})
}

func (h HealthCheck) or(d HealthCheck) HealthCheck {
	h.URL = cmp.Or(h.URL, d.URL)
	h.Interval = cmp.Or(h.Interval, d.Interval)
	h.Timeout = cmp.Or(h.Timeout, d.Timeout)
	h.SuccessThreshold = cmp.Or(h.SuccessThreshold, d.SuccessThreshold)
	h.FailureThreshold = cmp.Or(h.FailureThreshold, d.FailureThreshold)
	if len(h.ExpectedStatus) == 0 {
		h.ExpectedStatus = d.ExpectedStatus
	}
	h.TLS = cmp.Or(h.TLS, d.TLS)
	return h.clone()
}

// Clone returns a copy that shares nothing with s.
func (s Spec) Clone() Spec {
	s.CloudInit = clone(s.CloudInit)
	if s.CloudInit != nil {
		s.CloudInit.SecretRef = clone(s.CloudInit.SecretRef)
	}
	s.Credentials = clone(s.Credentials)
	s.Endpoint = clone(s.Endpoint)
	if s.Endpoint != nil {
		s.Endpoint.TLS = clone(s.Endpoint.TLS)
	}
	s.Attributes = maps.Clone(s.Attributes)
	s.HealthCheck = s.HealthCheck.clone()
	return s
}

func (h HealthCheck) clone() HealthCheck {
	h.ExpectedStatus = slices.Clone(h.ExpectedStatus)
	h.TLS = clone(h.TLS)
	return h
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
