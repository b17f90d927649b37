package pod

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/proxyfleet/fleet/provider"
)

// The reasons of states, beside those that Kubernetes gives.
const (
	unfinished      = "Unfinished"      // its Secret was never made, and nobody makes it any more
	starting        = "Starting"        // Squid does not listen yet
	noAddress       = "NoAddress"       // it runs and has no address yet
	nodeLost        = "NodeLost"        // the node does not confirm that the pod has ended
	heldByFinalizer = "HeldByFinalizer" // somebody keeps the pod from going
	imagePull       = "ImagePullBackOff"
)

// overdue is how long after its time a pod that is terminating may still be there, before that is told.
const overdue = time.Minute

// condition is a state with its reason.
type condition struct {
	state           provider.State
	reason, message string
}

// instance is what the fleet makes of a pod.
func (s settings) instance(pod *corev1.Pod, now time.Time) provider.Instance {
	c := s.conditionOf(pod, now)
	in := provider.Instance{
		ID: idOf(pod.Namespace, pod.Name), Incarnation: string(pod.UID), Marks: marksOf(pod),
		State: c.state, Reason: c.reason, Message: provider.Clip(c.message), Created: pod.CreationTimestamp.Time,
	}
	if c.state == provider.Running {
		in.Host = pod.Status.PodIP
	}
	return in
}

func (s settings) conditionOf(pod *corev1.Pod, now time.Time) condition {
	switch phase := pod.Status.Phase; {
	case pod.DeletionTimestamp != nil:
		return terminating(pod, now)
	case phase == corev1.PodFailed || phase == corev1.PodSucceeded:
		return ended(pod)
	case gated(pod):
		return s.gatedCondition(pod, now)
	case phase == corev1.PodPending || phase == "":
		return pending(pod)
	case phase == corev1.PodRunning:
		return running(pod)
	}
	return condition{provider.Stopped, cmp.Or(pod.Status.Reason, string(pod.Status.Phase)), pod.Status.Message}
}

// gated says whether a pod waits for its Secret.
func gated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == gate })
}

// gatedCondition is that of a pod that no Create has finished. As long as the one that began it may still be under way, it is on its way;
// after that it is at rest, and to be deleted. That is well before an answer that nothing is there is believed, so that nobody
// forgets it.
func (s settings) gatedCondition(pod *corev1.Pod, now time.Time) condition {
	const message = "the Secret of the pod has not been made"
	if now.Sub(pod.CreationTimestamp.Time) < s.delays.Call+(s.delays.Settle-s.delays.Call)/4 {
		return condition{provider.Provisioning, unfinished, message}
	}
	return condition{provider.Stopped, unfinished, message}
}

// terminating tells why a pod goes, and what keeps it from going. Nobody but the cluster's operators may say that the pod of a
// node that does not answer has ended: it may run on there, and a forced deletion would only hide that.
func terminating(pod *corev1.Pod, now time.Time) condition {
	c := condition{provider.Terminating, cmp.Or(pod.Status.Reason, disruption(pod)), pod.Status.Message}
	due := pod.DeletionTimestamp.Time
	switch {
	case now.Sub(due) < overdue:
	case len(pod.Finalizers) > 0:
		c.reason, c.message = heldByFinalizer, "the pod has finalizers: "+strings.Join(pod.Finalizers, ", ")
	case pod.Spec.NodeName == "":
		c.message = "the pod is on no node, and the API server has deleted it by half; its controller manager removes such pods, or delete it with --force"
	default:
		c.reason = nodeLost
		c.message = fmt.Sprintf("node %q has not confirmed since %s that the pod has ended; if the node is gone for good, delete its Node, "+
			"or the pod with --force", pod.Spec.NodeName, due.UTC().Format(time.RFC3339))
	}
	return c
}

// disruption is why something in the cluster ended a pod, or "".
func disruption(pod *corev1.Pod) string {
	if c := conditionNamed(pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return c.Reason
	}
	return ""
}

func conditionNamed(pod *corev1.Pod, name corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == name {
			return c
		}
	}
	return nil
}

// ended tells why a pod is over. That it was evicted is said of the pod, and that it failed by itself of its container.
func ended(pod *corev1.Pod) condition {
	c := condition{provider.Stopped, cmp.Or(pod.Status.Reason, disruption(pod)), pod.Status.Message}
	if t := squidOf(pod).State.Terminated; t != nil && c.reason == "" {
		c.reason, c.message = t.Reason, exit(t)
	}
	c.reason = cmp.Or(c.reason, string(pod.Status.Phase))
	return c
}

// squidOf is the status of the container.
func squidOf(pod *corev1.Pod) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == containerName {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// exit is how a container ended, and the last that it said.
func exit(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d, %s", t.ExitCode, t.Reason)
	if t.Message != "" {
		text += ": " + strings.TrimSpace(t.Message)
	}
	return text
}

// pending tells what a pod waits for: a node, or what its container needs there.
func pending(pod *corev1.Pod) condition {
	c := conditionNamed(pod, corev1.PodScheduled)
	if c != nil && c.Reason == corev1.PodReasonSchedulingGated && len(pod.Spec.SchedulingGates) == 0 {
		return condition{state: provider.Provisioning} // the scheduler has not looked since the gate was opened
	}
	if c != nil && c.Status == corev1.ConditionFalse {
		return condition{provider.Provisioning, c.Reason, c.Message}
	}
	if w := squidOf(pod).State.Waiting; w != nil {
		return waiting(pod, w)
	}
	return condition{provider.Provisioning, pod.Status.Reason, pod.Status.Message}
}

// waiting tells what a container waits for. What turns at each of the kubelet's attempts would be written down at each.
func waiting(pod *corev1.Pod, w *corev1.ContainerStateWaiting) condition {
	switch last := squidOf(pod).LastTerminationState.Terminated; {
	case w.Reason == "ErrImagePull" || w.Reason == imagePull:
		_, cause, backedOff := strings.Cut(w.Message, "ErrImagePull: ")
		if !backedOff {
			cause = w.Message
		}
		return condition{provider.Provisioning, imagePull, cause}
	case w.Reason == "CrashLoopBackOff" && last != nil:
		return condition{provider.Provisioning, w.Reason, exit(last)}
	}
	return condition{provider.Provisioning, w.Reason, w.Message}
}

// running tells whether Squid listens. A container that ended is started again by the kubelet, in the same pod.
func running(pod *corev1.Pod) condition {
	squid := squidOf(pod)
	switch {
	case squid.State.Waiting != nil:
		return waiting(pod, squid.State.Waiting)
	case squid.State.Terminated != nil:
		return condition{provider.Provisioning, squid.State.Terminated.Reason, exit(squid.State.Terminated)}
	case squid.State.Running == nil || squid.Started == nil || !*squid.Started:
		return condition{provider.Provisioning, starting, ""}
	case pod.Status.PodIP == "":
		return condition{provider.Provisioning, noAddress, ""}
	}
	return condition{state: provider.Running}
}
