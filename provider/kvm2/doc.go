// Package kvm2 makes instances that are virtual machines on hosts with libvirtd and QEMU, which are reached over SSH, as package
// kvm does. It differs in what it does about trouble.
//
// Keys and known hosts are read at each dial, and a host that does not take the key, or shows another one than the known, is a
// permanent failure. Every call of libvirt has a budget of its own, whatever time the fleet leaves it, and a span. A pool must have
// room for all that a machine needs before anything is made there. A check dials a connection of its own. Its machines bear marks of
// their own, so that neither provider touches those of the other, though they may share a host.
//
// docs/kvm2-provider.md says how a host is set up and what each reason means, and docs/kvm-or-kvm2.md which of the two to choose.
package kvm2
