package pod

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/proxyfleet/fleet/nocloud"
	"github.com/proxyfleet/fleet/provider"
)

// The labels that hold the marks, on pods and their Secrets.
const (
	managedLabel = "crawl.example.com/managed"
	fleetLabel   = "crawl.example.com/fleet"
	uidLabel     = "crawl.example.com/uid"
	hashLabel    = "crawl.example.com/hash"
)

const (
	// gate keeps a pod from being scheduled until its Secret is there.
	gate = "crawl.example.com/secret"
	// containerName is that of the one container, and configVolume of the volume that shows it the Secret.
	containerName = "squid"
	configVolume  = "config"
	// squidUser is the user and the group that Debian and Ubuntu call proxy.
	squidUser = 13
)

var planned = regexp.MustCompile(`^namespaces/([a-z0-9-]+)/pods/([a-z0-9-]+)$`)

func idOf(namespace, name string) string { return "namespaces/" + namespace + "/pods/" + name }

// place takes an ID apart. The namespace of an instance is always that of its ID: the configuration may name another one by now.
func place(op, id string) (namespace, name string, err error) {
	parts := planned.FindStringSubmatch(id)
	if parts == nil {
		return "", "", &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.NotConfigured,
			Err: fmt.Errorf("%q is no pod", id)}
	}
	return parts[1], parts[2], nil
}

// refuse returns why nothing can be made from a request, whatever happens, or nil.
func (s settings) refuse(op string, r provider.Request) error {
	if r.Credentials.IsZero() && len(s.AllowedClients) == 0 {
		return provider.Missing(op, "credentials (or allowedClients in the provider's configuration)")
	}
	if problems := s.problems(r); len(problems) > 0 {
		return &provider.Error{Op: op, Class: provider.ErrPermanent, Reason: provider.UnsupportedField, Err: errors.Join(problems...)}
	}
	return nil
}

// problems tells what a request has that no pod could have. An edit with a typo thus stops nothing that runs.
func (s settings) problems(r provider.Request) []error {
	var problems []error
	check := func(ok bool, text string) {
		if !ok {
			problems = append(problems, errors.New(text))
		}
	}
	const firstPort = 1024
	_, zoned := s.NodeSelector[corev1.LabelTopologyZone]
	check(len(validation.IsValidLabelValue(r.Placement.Zone)) == 0, "placement.zone: want the value of the nodes' label "+corev1.LabelTopologyZone)
	check(r.Placement.Zone == "" || !zoned, "placement.zone: the provider's nodeSelector says it already; remove it")
	check(r.Placement.MachineType == "", "placement.machineType: a pod has none; remove it")
	check(r.Placement.Image == "", "placement.image: what runs in the cluster is for the provider's configuration to say; remove it")
	check(r.Placement.DiskSizeGb == 0, "placement.diskSizeGb: a pod has no disk; remove it")
	check(r.CloudInit.IsZero(), "cloudInit: a pod has none; remove it")
	check(r.Port >= firstPort, "port: want at least 1024, because the proxy does not run as root")
	check(len(validation.IsDNS1123Label(r.Name)) == 0, "name: want lower-case letters, digits and '-'")
	for _, mark := range []struct{ name, value string }{{"uid", r.Marks.UID}, {"hash", r.Marks.Hash}} { // to validate documents takes neither
		check(len(validation.IsValidLabelValue(mark.value)) == 0, mark.name+": does not fit into a label")
	}
	if err := s.proxy(r).Validate(); err != nil {
		problems = append(problems, fmt.Errorf("port or credentials: %w", err))
	}
	return problems
}

// proxy is what a pod is to run.
func (s settings) proxy(r provider.Request) nocloud.Proxy {
	return nocloud.Proxy{
		Name: r.Name, Port: r.Port,
		Username: r.Credentials.Username, Password: r.Credentials.Password,
		AllowedClients: s.AllowedClients, AllowedDestinations: s.AllowedDestinations,
	}
}

func labelsOf(m provider.Marks) map[string]string {
	return map[string]string{
		"app.kubernetes.io/managed-by": "proxyfleet",
		managedLabel:                   "true",
		fleetLabel:                     m.Fleet, uidLabel: m.UID, hashLabel: m.Hash,
	}
}

func marksOf(o metav1.Object) provider.Marks {
	labels := o.GetLabels()
	return provider.Marks{Fleet: labels[fleetLabel], UID: labels[uidLabel], Hash: labels[hashLabel]}
}

// pod is what a pod is made from. It passes the Pod Security Standard "restricted".
func (s settings) pod(r provider.Request) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: r.Name, Labels: labelsOf(r.Marks)},
		Spec: corev1.PodSpec{
			SchedulingGates:               []corev1.PodSchedulingGate{{Name: gate}},
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(10)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true),
				RunAsUser:    new(int64(squidUser)), RunAsGroup: new(int64(squidUser)), FSGroup: new(int64(squidUser)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			ImagePullSecrets: s.pullSecrets(),
			NodeSelector:     s.nodeSelector(r),
			Tolerations:      s.Tolerations,
			// Proxies on one node crawl from one address.
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{managedLabel: "true", fleetLabel: r.Marks.Fleet}},
			}},
			Containers: []corev1.Container{s.container(r)},
			Volumes: []corev1.Volume{{Name: configVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: secretName(r), DefaultMode: new(int32(0o440)),
			}}}},
		},
	}
}

// container runs Squid and nothing of what the image would do otherwise. Nothing but the fleet judges the proxy: the probe only
// keeps a pod from being taken for one that runs before Squid listens.
func (s settings) container(r provider.Request) corev1.Container {
	return corev1.Container{
		Name:    containerName,
		Image:   s.Image,
		Command: []string{"/usr/sbin/squid", "-N", "-d", "1", "-f", "/etc/squid/squid.conf"},
		Ports:   []corev1.ContainerPort{{Name: "proxy", ContainerPort: int32(r.Port)}},
		Resources: corev1.ResourceRequirements{
			Requests: s.Resources.Requests, Limits: s.Resources.Limits,
		},
		StartupProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(r.Port))}},
			PeriodSeconds: 1, FailureThreshold: 300,
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             []corev1.VolumeMount{{Name: configVolume, MountPath: "/etc/squid", ReadOnly: true}},
	}
}

func (s settings) pullSecrets() []corev1.LocalObjectReference {
	var refs []corev1.LocalObjectReference
	for _, name := range s.ImagePullSecrets {
		refs = append(refs, corev1.LocalObjectReference{Name: name})
	}
	return refs
}

func (s settings) nodeSelector(r provider.Request) map[string]string {
	labels := maps.Clone(s.NodeSelector)
	if r.Placement.Zone == "" {
		return labels
	}
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelTopologyZone] = r.Placement.Zone
	return labels
}

// secretName is another one for each attempt: the Secret of a pod is collected some time after the pod is gone, and its successor
// must not be given that one.
func secretName(r provider.Request) string {
	sum := sha256.Sum256([]byte(r.Token))
	return fmt.Sprintf("%s-%x", r.Name, sum[:5])
}

// inContainer ends Squid's configuration. There is no file that it may write, what it has to say goes to standard error, and a
// runtime that lets it have a milliard of files must not make it set memory aside for each.
const inContainer = `
pid_filename none
cache_log /dev/null
max_filedescriptors 16384
`

// secret is what a pod reads. It goes with the pod, whose it is from its first moment.
func (s settings) secret(r provider.Request, pod *corev1.Pod) (*corev1.Secret, error) {
	config, passwd, err := nocloud.SquidFiles(s.proxy(r))
	if err != nil {
		return nil, err
	}
	files := map[string]string{"squid.conf": config + inContainer}
	if !passwd.IsZero() {
		files["passwd"] = passwd.Reveal()
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: secretOf(pod), Labels: labelsOf(r.Marks),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Immutable:  new(true),
		StringData: files,
	}, nil
}

// secretOf is the name of the Secret that a pod waits for.
func secretOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == configVolume && v.Secret != nil {
			return v.Secret.SecretName
		}
	}
	return ""
}
