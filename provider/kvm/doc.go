// Package kvm makes instances that are virtual machines on hosts with libvirtd and QEMU, which are reached over SSH.
//
// All calls to a host share one connection, and checks go the same way. Keys and known hosts are read once. What keeps a host
// from being reached is tried again and again, whatever it is. docs/kvm-provider.md says how a host is set up, and what each
// reason means.
package kvm
