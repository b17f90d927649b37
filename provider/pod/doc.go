// Package pod makes instances that are pods of a Kubernetes cluster, each with a Squid.
//
// The cluster is polled and never watched. Squid's configuration, with a hash of the password, is in a Secret that the pod owns
// and that goes with it. A pod is made before its Secret, so that there never is a Secret without an owner, and with a
// scheduling gate, which is removed when the Secret is there: what a crash leaves between the two is seen in the pod itself, is
// finished by the next Create, and is deleted when none comes.
//
// docs/pod-provider.md tells what the provider needs and makes, and what each reason means.
package pod
