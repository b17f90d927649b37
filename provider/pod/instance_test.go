package pod_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/pod"
)

// now is when pods are looked at.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// status is the status of a pod with one container.
func status(phase corev1.PodPhase, container corev1.ContainerStatus) corev1.PodStatus {
	container.Name = "squid"
	return corev1.PodStatus{Phase: phase, PodIP: "10.0.0.7", ContainerStatuses: []corev1.ContainerStatus{container}}
}

func waits(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func scheduled(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"},
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message},
	}}
}

func disrupted(reason string) []corev1.PodCondition {
	return []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}
}

// TestStates says what the fleet is told of a pod in each of its states.
func TestStates(t *testing.T) {
	runs := corev1.ContainerStatus{Started: new(true), Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	boots := corev1.ContainerStatus{Started: new(false), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	died := &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "FATAL: Bungled squid.conf line 3\n"}
	crashes := waits("CrashLoopBackOff", "back-off 40s restarting failed container=squid pod=proxy-x")
	crashes.LastTerminationState.Terminated = died
	ends := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}}
	away := status(corev1.PodRunning, runs)
	away.PodIP = ""
	lost := status(corev1.PodRunning, runs)
	lost.Reason, lost.Message = "NodeLost", "Node node1 which was running pod proxy-x is unresponsive"
	evictedByAPI := status(corev1.PodRunning, runs)
	evictedByAPI.Conditions = disrupted("EvictionByEvictionAPI")
	shutDown := status(corev1.PodFailed, ends)
	shutDown.Conditions = disrupted("TerminationByKubelet")

	goes := func(ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now.Add(-ago))) }
	}
	waitsForSecret := func(age time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(now.Add(-age))
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}, {Name: "crawl.example.com/secret"}}
		}
	}
	tests := map[string]struct {
		status corev1.PodStatus
		edit   func(*corev1.Pod)
		want   provider.Instance
	}{
		"no status yet": {want: provider.Instance{State: provider.Provisioning}},
		"no node has room": {status: scheduled("Unschedulable", "0/3 nodes are available: 3 Insufficient memory."),
			want: provider.Instance{State: provider.Provisioning, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient memory."}},
		"the gate was opened": {status: scheduled("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
			want: provider.Instance{State: provider.Provisioning}},
		"the gate of somebody else": {status: scheduled("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
			edit: func(p *corev1.Pod) {
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
			},
			want: provider.Instance{State: provider.Provisioning, Reason: "SchedulingGated", Message: "Scheduling is blocked due to non-empty scheduling gates"}},
		"scheduled": {status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
			want: provider.Instance{State: provider.Provisioning}},
		"container being made": {status: status(corev1.PodPending, waits("ContainerCreating", "")),
			want: provider.Instance{State: provider.Provisioning, Reason: "ContainerCreating"}},
		"image cannot be pulled": {status: status(corev1.PodPending, waits("ErrImagePull", `failed to pull image "x": not found`)),
			want: provider.Instance{State: provider.Provisioning, Reason: "ImagePullBackOff", Message: `failed to pull image "x": not found`}},
		"image pull backs off": {status: status(corev1.PodPending, waits("ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: failed to pull image "x": not found`)),
			want: provider.Instance{State: provider.Provisioning, Reason: "ImagePullBackOff", Message: `failed to pull image "x": not found`}},
		"no image": {status: status(corev1.PodPending, waits("InvalidImageName", "invalid reference format")),
			want: provider.Instance{State: provider.Provisioning, Reason: "InvalidImageName", Message: "invalid reference format"}},
		"container cannot be configured": {status: status(corev1.PodPending, waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")),
			want: provider.Instance{State: provider.Provisioning, Reason: "CreateContainerConfigError", Message: "container has runAsNonRoot and image will run as root"}},

		"runs":                 {status: status(corev1.PodRunning, runs), want: provider.Instance{State: provider.Running, Host: "10.0.0.7"}},
		"runs, says nothing":   {status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7"}, want: provider.Instance{State: provider.Provisioning, Reason: "Starting"}},
		"does not listen yet":  {status: status(corev1.PodRunning, boots), want: provider.Instance{State: provider.Provisioning, Reason: "Starting"}},
		"has no address yet":   {status: away, want: provider.Instance{State: provider.Provisioning, Reason: "NoAddress"}},
		"ended a moment ago":   {status: status(corev1.PodRunning, ends), want: provider.Instance{State: provider.Provisioning, Reason: "OOMKilled", Message: "exit code 137, OOMKilled"}},
		"ends again and again": {status: status(corev1.PodRunning, crashes), want: provider.Instance{State: provider.Provisioning, Reason: "CrashLoopBackOff", Message: "exit code 1, Error: FATAL: Bungled squid.conf line 3"}},

		"evicted": {status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."},
			want: provider.Instance{State: provider.Stopped, Reason: "Evicted", Message: "The node was low on resource: memory."}},
		"rejected by the kubelet": {status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu"},
			want: provider.Instance{State: provider.Stopped, Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu"}},
		"ended by a node that shuts down": {status: shutDown, want: provider.Instance{State: provider.Stopped, Reason: "TerminationByKubelet"}},
		"failed": {status: status(corev1.PodFailed, ends),
			want: provider.Instance{State: provider.Stopped, Reason: "OOMKilled", Message: "exit code 137, OOMKilled"}},
		"succeeded":     {status: corev1.PodStatus{Phase: corev1.PodSucceeded}, want: provider.Instance{State: provider.Stopped, Reason: "Succeeded"}},
		"unknown phase": {status: corev1.PodStatus{Phase: corev1.PodUnknown, Reason: "NodeLost"}, want: provider.Instance{State: provider.Stopped, Reason: "NodeLost"}},

		"goes":                   {status: status(corev1.PodRunning, runs), edit: goes(-10 * time.Second), want: provider.Instance{State: provider.Terminating}},
		"goes, and had ended":    {status: status(corev1.PodFailed, ends), edit: goes(-10 * time.Second), want: provider.Instance{State: provider.Terminating}},
		"evicted by the API":     {status: evictedByAPI, edit: goes(0), want: provider.Instance{State: provider.Terminating, Reason: "EvictionByEvictionAPI"}},
		"goes, and waited":       {edit: func(p *corev1.Pod) { waitsForSecret(time.Hour)(p); goes(0)(p) }, want: provider.Instance{State: provider.Terminating}},
		"its node is known lost": {status: lost, edit: goes(0), want: provider.Instance{State: provider.Terminating, Reason: "NodeLost", Message: "Node node1 which was running pod proxy-x is unresponsive"}},
		"its node says nothing":  {status: status(corev1.PodRunning, runs), edit: goes(time.Hour), want: provider.Instance{State: provider.Terminating, Reason: "NodeLost", Message: `node "node1" has not confirmed since 2026-03-01T11:00:00Z that the pod has ended; if the node is gone for good, delete its Node, or the pod with --force`}},
		"deleted by half": {status: corev1.PodStatus{Phase: corev1.PodPending}, edit: func(p *corev1.Pod) { goes(time.Hour)(p); p.Spec.NodeName = "" },
			want: provider.Instance{State: provider.Terminating, Message: "the pod is on no node, and the API server has deleted it by half; its controller manager removes such pods, or delete it with --force"}},
		"somebody keeps it there": {status: status(corev1.PodRunning, runs), edit: func(p *corev1.Pod) { goes(time.Hour)(p); p.Finalizers = []string{"example.com/a"} }, want: provider.Instance{State: provider.Terminating, Reason: "HeldByFinalizer", Message: "the pod has finalizers: example.com/a"}},

		"waits for its Secret": {edit: waitsForSecret(40 * time.Second), want: provider.Instance{State: provider.Provisioning, Reason: "Unfinished", Message: "the Secret of the pod has not been made"}},
		"waits for ever":       {edit: waitsForSecret(50 * time.Second), want: provider.Instance{State: provider.Stopped, Reason: "Unfinished", Message: "the Secret of the pod has not been made"}},
	}
	p := open(t, "fleet-one", map[string]any{"settle": "90s"})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			one := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "proxies", Name: "proxy-x", UID: "pod-uid", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
					Labels: labelsOf(provider.Marks{Fleet: "fleet-one", UID: "uid-1", Hash: "v1-x"})},
				Spec:   corev1.PodSpec{NodeName: "node1"},
				Status: test.status,
			}
			if test.edit != nil {
				test.edit(one)
			}
			want := test.want
			want.ID, want.Incarnation, want.Created = "namespaces/proxies/pods/proxy-x", "pod-uid", one.CreationTimestamp.Time
			want.Marks = provider.Marks{Fleet: "fleet-one", UID: "uid-1", Hash: "v1-x"}
			if diff := cmp.Diff(want, pod.InstanceOf(p, one, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMessagesAreClipped says that no page of a kubelet reaches a status.
func TestMessagesAreClipped(t *testing.T) {
	one := &corev1.Pod{Status: scheduled("Unschedulable", strings.Repeat("x", 5000))}
	if got := len(pod.InstanceOf(open(t, "fleet-one", nil), one, now).Message); got > 1024 {
		t.Errorf("the message has %d bytes", got)
	}
}
