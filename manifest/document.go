package manifest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// apiVersion is that of the kinds of this project.
const apiVersion = "crawl.example.com/v1alpha1"

// metadata is what kubectl apply takes, and what kubectl get prints beside it: an API server's own fields are ignored, so
// that an object can be copied out of a cluster.
type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`

	CreationTimestamp any `json:"creationTimestamp"`
	Finalizers        any `json:"finalizers"`
	Generation        any `json:"generation"`
	ManagedFields     any `json:"managedFields"`
	OwnerReferences   any `json:"ownerReferences"`
	ResourceVersion   any `json:"resourceVersion"`
	UID               any `json:"uid"`
}

func (m metadata) key() proxy.Key {
	return proxy.Key{Namespace: cmp.Or(m.Namespace, "default"), Name: m.Name}
}

// proxyDocument is a Proxy. Its status is the fleet's and is ignored, as kubectl apply does.
type proxyDocument struct {
	Metadata metadata   `json:"metadata"`
	Spec     proxy.Spec `json:"spec"`
	Status   any        `json:"status"`
}

// secretDocument is a Secret. The strings are secret until they are in a [secret.Text].
type secretDocument struct {
	Metadata   metadata          `json:"metadata"`
	Type       string            `json:"type"`
	Immutable  bool              `json:"immutable"`
	Data       map[string]string `json:"data"`
	StringData map[string]string `json:"stringData"`
}

// listDocument is what kubectl get prints for several objects.
type listDocument struct {
	Metadata any   `json:"metadata"`
	Items    []any `json:"items"`
}

// document takes one parsed document into the set.
func (b *builder) document(at place, v any) {
	object, ok := v.(map[string]any)
	if !ok {
		b.problem(at, errors.New("must be an object with apiVersion and kind, not "+named(v)))
		return
	}
	var header struct{ kind, apiVersion string }
	header.kind, _ = object["kind"].(string)
	header.apiVersion, _ = object["apiVersion"].(string)
	take, want := b.kind(header.kind)
	switch {
	case take == nil:
		b.problem(at, &proxy.FieldError{Field: "kind", Problem: fmt.Sprintf("must be Proxy, Secret or FleetConfiguration, not %q", header.kind)})
		return
	case header.apiVersion != want:
		b.problem(at, &proxy.FieldError{Field: "apiVersion", Problem: fmt.Sprintf("must be %s for kind %s, not %q", want, header.kind, header.apiVersion)})
		return
	}
	delete(object, "kind")
	delete(object, "apiVersion")
	at.subject = header.kind
	take(at, object)
}

// kind returns what takes the documents of a kind, and the apiVersion that they have.
func (b *builder) kind(kind string) (take func(place, map[string]any), version string) {
	switch kind {
	case "Proxy":
		return b.proxy, apiVersion
	case "FleetConfiguration":
		return b.configuration, apiVersion
	case "Secret":
		return b.secret, "v1"
	case "List":
		return b.list, "v1"
	}
	return nil, ""
}

func (b *builder) list(at place, object map[string]any) {
	var doc listDocument
	b.problem(at, decode(object, &doc)...)
	for i, item := range doc.Items {
		at.item, at.subject = i+1, ""
		b.document(at, item)
	}
}

func (b *builder) proxy(at place, object map[string]any) {
	var doc proxyDocument
	problems := decode(object, &doc)
	key := doc.Metadata.key()
	at.subject += " " + key.String()
	if len(problems) == 0 {
		problems = append(problems, proxy.ValidateKey(key), proxy.Validate(doc.Spec))
	}
	b.problem(at, problems...)
	if b.first(at) {
		b.set.Proxies[key] = proxy.Declaration{Spec: doc.Spec, Annotations: doc.Metadata.Annotations}
		b.set.places[key] = at
	}
}

func (b *builder) configuration(at place, object map[string]any) {
	var c Configuration
	problems := decode(object, &c)
	for i := range c.Providers {
		if c.Providers[i].Config == nil {
			c.Providers[i].Config = json.RawMessage("{}")
		}
	}
	if len(problems) == 0 {
		problems = c.validate()
	}
	b.problem(at, problems...)
	if b.first(at) {
		b.set.Configuration = &c
	}
}

func (b *builder) secret(at place, object map[string]any) {
	var doc secretDocument
	problems := decode(object, &doc)
	key := doc.Metadata.key()
	at.subject += " " + key.String()
	data, more := doc.values()
	problems = append(problems, more...)
	if !dnsLabel.MatchString(key.Namespace) {
		problems = append(problems, &proxy.FieldError{Field: "metadata.namespace", Problem: fmt.Sprintf("must be a DNS label, not %q", key.Namespace)})
	}
	if !isSecretName(key.Name) {
		problems = append(problems, &proxy.FieldError{Field: "metadata.name", Problem: fmt.Sprintf("must be a DNS subdomain, not %q", key.Name)})
	}
	b.problem(at, problems...)
	if b.first(at) {
		b.set.Secrets[key] = proxy.Secret{Labels: doc.Metadata.Labels, Data: data}
	}
}

// values returns the data, over which stringData goes.
func (doc *secretDocument) values() (map[string]secret.Text, []error) {
	var problems []error
	add := func(path, problem string) {
		problems = append(problems, &proxy.FieldError{Field: path, Problem: problem})
	}
	plain := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(doc.Data)) {
		value, err := base64.StdEncoding.DecodeString(doc.Data[key])
		if err != nil {
			// The error would tell where, and that is more than a log needs to know of a secret.
			add(join("data", key), "is not base64; a value as it is belongs under stringData")
		}
		plain[key] = string(value)
	}
	maps.Copy(plain, doc.StringData)

	data, size := make(map[string]secret.Text, len(plain)), 0
	for _, key := range slices.Sorted(maps.Keys(plain)) {
		if !isSecretKey(key) {
			add(join("data", key), "is not a key of a Secret: 1 to 253 letters, digits, '-', '_' and '.', not beginning with '..'")
		}
		data[key] = secret.New(plain[key])
		size += len(plain[key])
	}
	if size > maxSecret {
		add("data", fmt.Sprintf("must be at most %d bytes in all, not %d", maxSecret, size))
	}
	return data, problems
}

var (
	secretName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	secretKey  = regexp.MustCompile(`^[-._A-Za-z0-9]{1,253}$`)
)

func isSecretKey(s string) bool {
	return secretKey.MatchString(s) && s != "." && !strings.HasPrefix(s, "..")
}

// isSecretName says whether s is a DNS subdomain. As in Kubernetes, its parts may be longer than DNS would let them be.
func isSecretName(s string) bool { return len(s) <= 253 && secretName.MatchString(s) }
