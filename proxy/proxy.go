package proxy

import (
	"cmp"
	"log/slog"
	"maps"
)

// Names that the fleet gives a meaning to, on records and on Secrets.
const (
	// FinalizerName is the finalizer that keeps a record until its instance is gone.
	FinalizerName = "crawl.example.com/instance"
	// SkipCleanupAnnotation, with the value "true", lets go of a record that is being deleted without deleting its
	// instance.
	SkipCleanupAnnotation = "crawl.example.com/skip-cleanup"
	// RetryAnnotation asks for an attempt at once, whatever failed before; each new value asks again.
	RetryAnnotation = "crawl.example.com/retry"
	// CloudInitLabel, with the value "true", marks a Secret that holds cloud-init user data.
	CloudInitLabel = "crawl.example.com/cloud-init"
	// CredentialsLabel, with the value "true", marks a Secret that holds the user and password of proxies.
	CredentialsLabel = "crawl.example.com/credentials"
)

// Key names a proxy. Both parts are DNS-1123 labels.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns namespace/name, the form that logs, metrics and APIs use.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// LogValue is what a log in whatever format shows: namespace/name.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Compare orders keys by namespace, then name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Proxy is one record.
type Proxy struct {
	Key
	// UID is this life of the name. A store that derives it from the name gives a name that is declared again the UID of
	// its earlier life.
	UID string `json:"uid"`
	// Created is when this life was declared; zero in records from before it was kept.
	Created Time `json:"created,omitzero"`
	// Generation rises by one whenever the canonical spec changes.
	Generation int64 `json:"generation"`
	// Version is opaque and changes with every successful write of metadata, spec or status that changed anything.
	Version string `json:"version"`
	// Deleting says that the record goes as soon as its finalizer does.
	Deleting bool `json:"deleting,omitempty"`
	// Finalizer says that the record must stay because an instance may exist.
	Finalizer   bool              `json:"finalizer,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        Spec              `json:"spec"`
	Status      Status            `json:"status,omitzero"`
}

// Clone returns a copy that shares nothing with p.
func (p *Proxy) Clone() *Proxy {
	c := *p
	c.Annotations = maps.Clone(p.Annotations)
	c.Spec = p.Spec.Clone()
	c.Status = p.Status.Clone()
	return &c
}
