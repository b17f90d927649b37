// Package libvirt makes virtual machines on hosts that run libvirtd and are reached over SSH. It is what the providers kvm and
// kvm2 need alike; a [Policy] holds what they do differently.
//
// A [Conn] is one SSH connection with one libvirtd behind it. The protocol has no timeouts, so every call is bound to a context,
// and a context that ends takes the connection with it: nothing else frees a call that a host does not answer.
//
// A [Provider] keeps one connection per host, makes a domain with an overlay over a cached image and a seed for cloud-init, and
// moves images in the background.
package libvirt
