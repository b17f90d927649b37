package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/proxyfleet/fleet/provider"
)

// InstanceOf is what a provider makes of a pod at a time.
func InstanceOf(p provider.Provider, pod *corev1.Pod, now time.Time) provider.Instance {
	return p.(*pods).settings.instance(pod, now)
}
