package pod_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// kubelet plays the scheduler and the kubelet of a namespace until the end of the test: what may be scheduled runs a moment later,
// and what is to end has ended a moment later.
func kubelet(t testing.TB, api kubernetes.Interface, namespace string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for {
			if list, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); err == nil {
				for i := range list.Items {
					_ = step(ctx, api, &list.Items[i]) // whoever was quicker is seen in the next round
				}
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}()
}

func step(ctx context.Context, api kubernetes.Interface, pod *corev1.Pod) error {
	pods := api.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	case len(pod.Spec.SchedulingGates) > 0 || pod.Status.Phase == corev1.PodRunning:
		return nil
	case pod.Spec.NodeName == "":
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "node1"}}
		return pods.Bind(ctx, binding, metav1.CreateOptions{})
	}
	if len(pod.Spec.Volumes) > 0 && pod.Spec.Volumes[0].Secret != nil { // as a kubelet, which starts nothing before it is there
		if _, err := api.CoreV1().Secrets(pod.Namespace).Get(ctx, pod.Spec.Volumes[0].Secret.SecretName, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	address := fmt.Sprintf("10.199.0.%d", 1+pod.UID[0]%200)
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Ready: true, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}
