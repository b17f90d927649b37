package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/proxyfleet/fleet/api/v1alpha1"
	"github.com/proxyfleet/fleet/proxy"
)

// wire is a Proxy object whose parts are still JSON: one that cannot be understood must not make a list of all others
// unreadable.
type wire struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   json.RawMessage `json:"spec,omitempty"`
	Status json.RawMessage `json:"status,omitempty"`
}

// DeepCopyObject returns a copy that shares nothing with w.
func (w *wire) DeepCopyObject() runtime.Object {
	c := &wire{TypeMeta: w.TypeMeta, Spec: slices.Clone(w.Spec), Status: slices.Clone(w.Status)}
	w.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return c
}

// wireList is a list of Proxy objects.
type wireList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []wire `json:"items"`
}

// DeepCopyObject returns a copy that shares nothing with l.
func (l *wireList) DeepCopyObject() runtime.Object {
	c := &wireList{TypeMeta: l.TypeMeta, Items: make([]wire, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*wire)
	}
	return c
}

// wireScheme knows the Proxy objects in the form of this package.
func wireScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(proxyKind(), &wire{})
	s.AddKnownTypeWithName(v1alpha1.GroupVersion().WithKind("ProxyList"), &wireList{})
	metav1.AddToGroupVersion(s, v1alpha1.GroupVersion())
	return s
}

func proxyKind() schema.GroupVersionKind { return v1alpha1.GroupVersion().WithKind("Proxy") }

// object is a Proxy object as the store keeps it. It is not changed once it was made.
type object struct {
	metav1.ObjectMeta

	spec   proxy.Spec
	status proxy.Status
	// unreadable says why spec or status cannot be understood, invalid why the spec cannot be followed. The API server let
	// it pass: the schema there is another, or it cannot say what is wrong.
	unreadable, statusUnreadable, invalid error
}

// understood makes an object of what the API server sent.
func understood(w *wire) *object {
	o := &object{ObjectMeta: w.ObjectMeta}
	o.ManagedFields = nil
	if _, ok := o.Annotations[corev1.LastAppliedConfigAnnotation]; ok { // kubectl's own copy of the spec
		o.Annotations = maps.Clone(o.Annotations)
		delete(o.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	if err := decode(w.Spec, &o.spec); err != nil {
		o.spec, o.unreadable = proxy.Spec{}, fmt.Errorf("spec: %w", err)
	} else {
		o.invalid = errors.Join(proxy.ValidateKey(o.key()), proxy.Validate(o.spec))
	}
	if err := decode(w.Status, &o.status); err != nil {
		o.status, o.statusUnreadable = proxy.Status{}, fmt.Errorf("status: %w", err)
	}
	return o
}

func decode(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, into)
}

func (o *object) key() proxy.Key { return proxy.Key{Namespace: o.Namespace, Name: o.Name} }

// finalizer says whether the fleet's own is there.
func (o *object) finalizer() bool { return slices.Contains(o.Finalizers, proxy.FinalizerName) }

// keeper is the fleet that keeps the proxy, as the object says, or "".
func (o *object) keeper() string { return o.Annotations[FleetAnnotation] }

// keptBy says whether the finalizer is a fleet's: it comes with the fleet's mark, and one without was left by a fleet that gave the
// proxy away. While the object goes no mark is asked for, so that whoever sees it takes the finalizer away in the end.
func (o *object) keptBy(fleet string) bool {
	return o.finalizer() && (fleet == "" || o.keeper() == fleet || o.DeletionTimestamp != nil)
}

// removed says whether an object that was just written is gone by that: nothing keeps it any more.
func (o *object) removed() bool { return o.DeletionTimestamp != nil && len(o.Finalizers) == 0 }

// problem says why nobody can work with the object. For a deletion its status is enough.
func (o *object) problem() error {
	if o.DeletionTimestamp != nil {
		return o.statusUnreadable
	}
	return errors.Join(o.unreadable, o.statusUnreadable)
}

// record returns the object as the model has it for a fleet. The caller owns it.
func (o *object) record(fleet string) *proxy.Proxy {
	p := &proxy.Proxy{
		Key: o.key(), UID: string(o.UID), Created: proxy.At(o.CreationTimestamp.Time), Generation: o.Generation,
		Version: o.ResourceVersion, Deleting: o.DeletionTimestamp != nil, Finalizer: o.keptBy(fleet),
		Annotations: maps.Clone(o.Annotations), Spec: o.spec.Canonical(), Status: o.status.Clone(),
	}
	if p.Deleting {
		p.Generation-- // the mark counts as an edit there
	}
	if p.Spec.Mode == proxy.External && p.Spec.Endpoint == nil {
		p.Spec.Endpoint = &proxy.Endpoint{} // it is invalid, and shall harm nobody who looks at it
	}
	return p
}

// secrets names the Secrets that the spec refers to, with their namespace.
func (o *object) secrets() []string {
	var names []string
	if c := o.spec.CloudInit; c != nil && c.SecretRef != nil {
		names = append(names, o.Namespace+"/"+c.SecretRef.Name)
	}
	if c := o.spec.Credentials; c != nil {
		names = append(names, o.Namespace+"/"+c.SecretRef.Name)
	}
	return names
}
