package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/proxyfleet/fleet/provider"
)

// Config is what the fleet's configuration says about this provider.
type Config struct {
	// Namespace is where pods are made, and looked for. Required.
	Namespace string `json:"namespace"`
	// Kubeconfig is the path of a file that says which cluster that is. Defaults to the cluster that this process runs in; outside
	// of one, to what kubectl would take.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Context is the name of one in the kubeconfig. Defaults to the current one, which anybody's kubectl may change.
	Context string `json:"context,omitempty"`

	// Image has Squid as Debian and Ubuntu package it. Defaults to Canonical's, pinned.
	Image string `json:"image,omitempty"`
	// ImagePullSecrets are names of Secrets in the namespace that open a registry. Defaults to none.
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// Resources are what a pod asks for and what it may take at most. What either names replaces the default of that name; the
	// defaults are requests of 50m cpu and 64Mi memory, and a limit of 256Mi memory.
	Resources Resources `json:"resources,omitzero"`
	// NodeSelector are labels that nodes must have. Defaults to none.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations are for taints of nodes. Defaults to none.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// AllowedClients are the networks that may use the proxies. Defaults to everybody who knows the password; required for
	// proxies without one.
	AllowedClients []netip.Prefix `json:"allowedClients,omitempty"`
	// AllowedDestinations are the private networks that proxies may lead to. Defaults to none.
	AllowedDestinations []netip.Prefix `json:"allowedDestinations,omitempty"`

	// Settle is how long after a create nothing is taken for proof that no pod comes of it, 3s to 1h, such as "90s"; see
	// provider.Delays. A create may be sent for a third of it. Defaults to 90 seconds.
	Settle string `json:"settle,omitempty"`
}

// Resources are quantities by resource, such as {"cpu": "50m"}.
type Resources struct {
	// Requests are what a node must have free. Defaults as said at Config.
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// Limits are the most that a pod may take. Defaults as said at Config.
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// defaultImage is pinned: what a tag stands for may change.
const defaultImage = "docker.io/ubuntu/squid:6.6-24.04_beta@sha256:6a097f68bae708cedbabd6188d68c7e2e7a38cedd05a176e1cc0ba29e3bbe029"

// defaultSettle covers a create that is sent in the last moment of its third, the minute that an API server may take for it, and
// clocks that differ.
const defaultSettle = 90 * time.Second

// settings are a configuration that is right, with its defaults.
type settings struct {
	Config
	delays provider.Delays
}

func decode(raw json.RawMessage) (settings, error) {
	c := Config{Image: defaultImage}
	if err := provider.DecodeConfig(raw, &c); err != nil {
		return settings{}, err
	}
	c.Resources.Requests = withDefaults(c.Resources.Requests, corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
	})
	c.Resources.Limits = withDefaults(c.Resources.Limits, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")})
	s := settings{Config: c, delays: delaysOf(defaultSettle)}
	problems := append(c.placeProblems(), c.podProblems()...)
	if c.Settle != "" {
		settle, err := time.ParseDuration(c.Settle)
		if err != nil || settle < 3*time.Second || settle > time.Hour {
			problems = append(problems, errors.New("settle: want a duration from 3s to 1h"))
		}
		s.delays = delaysOf(settle)
	}
	return s, errors.Join(problems...)
}

func delaysOf(settle time.Duration) provider.Delays {
	return provider.Delays{Call: settle / 3, Settle: settle}
}

// withDefaults adds to a list what it does not name.
func withDefaults(list, defaults corev1.ResourceList) corev1.ResourceList {
	maps.Copy(defaults, list)
	return defaults
}

// placeProblems tells what is wrong with where pods are to run.
func (c Config) placeProblems() []error {
	var problems []error
	wrong := func(field string, texts []string) {
		if len(texts) > 0 {
			problems = append(problems, fmt.Errorf("%s: %s", field, strings.Join(texts, "; ")))
		}
	}
	if c.Namespace == "" {
		problems = append(problems, errors.New("namespace: required"))
	} else {
		wrong("namespace", validation.IsDNS1123Label(c.Namespace))
	}
	for key, value := range c.NodeSelector {
		wrong("nodeSelector."+key, slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)))
	}
	return problems
}

// podProblems tells what is wrong with what pods are to be.
func (c Config) podProblems() []error {
	var problems []error
	if c.Image == "" || strings.TrimSpace(c.Image) != c.Image {
		problems = append(problems, errors.New("image: want the name of an image"))
	}
	for i, name := range c.ImagePullSecrets {
		if texts := validation.IsDNS1123Subdomain(name); len(texts) > 0 {
			problems = append(problems, fmt.Errorf("imagePullSecrets[%d]: %s", i, strings.Join(texts, "; ")))
		}
	}
	for name, limit := range c.Resources.Limits {
		if request, ok := c.Resources.Requests[name]; ok && request.Cmp(limit) > 0 {
			problems = append(problems, fmt.Errorf("resources.requests.%s: %s is more than the limit, %s", name, &request, &limit))
		}
	}
	return problems
}
