#!/bin/bash
# Installs what the tests and the linter need besides Go: the proxies that health checks are tried on, Prometheus, a browser, curl, jq,
# Scrapy, make, a C compiler for the race detector, a hypervisor: libvirt, QEMU, an SSH server and what builds the disk of a guest,
# and what a Kubernetes node needs besides Kubernetes: containerd, runc and what wires its pods.
# What is there already is not touched, so a machine that has everything needs no
# network. For Debian and its descendants; elsewhere it names what is missing.
set -euo pipefail

# Daemons live in sbin, which is not on everybody's path.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# need COMMAND_OR_FILE PACKAGE… notes the packages when there is no such command or file.
missing=()
need() {
	local what=$1
	shift
	[[ -e $what ]] || command -v "$what" >/dev/null || missing+=("$@")
}

need squid squid
need tinyproxy tinyproxy
need danted dante-server
need promtool prometheus
need cloud-init cloud-init
need isoinfo genisoimage
need chromium chromium
need chromedriver chromium-driver
need curl curl
need jq jq
need /usr/lib/python3/dist-packages/scrapy python3-scrapy
need strace strace
need libvirtd libvirt-daemon-system
need virsh libvirt-clients
need qemu-system-x86_64 qemu-system-x86
need qemu-img qemu-utils
need /usr/share/OVMF/OVMF_CODE_4M.fd ovmf
need dnsmasq dnsmasq-base
need sshd openssh-server
need ssh-keygen openssh-client
need ip iproute2
need iptables iptables
need mcopy mtools
need mkfs.vfat dosfstools
need sfdisk fdisk
need mke2fs e2fsprogs
need mmdebstrap mmdebstrap
need modprobe kmod
need cpio cpio
need objcopy binutils
need busybox busybox-static
need syslinux syslinux
need /usr/lib/syslinux/mbr/mbr.bin syslinux-common
need /usr/lib/systemd/boot/efi/linuxx64.efi.stub systemd-boot-efi
need containerd containerd
need runc runc
need /usr/lib/cni/bridge containernetworking-plugins
need buildah buildah
need make make
need gcc gcc
need /usr/include/stdlib.h libc6-dev
need /etc/ssl/certs/ca-certificates.crt ca-certificates

if ! command -v go >/dev/null; then
	echo "Go is missing; go.mod names the version: https://go.dev/doc/install" >&2
	exit 1
fi
if ((${#missing[@]} == 0)); then
	exit 0
fi
if ! command -v apt-get >/dev/null || ((EUID != 0)); then
	echo "Missing: ${missing[*]} (names of Debian packages). Install them, or run this as root on Debian." >&2
	exit 1
fi

# The tests start proxies of their own. Debian would start each daemon as it is installed, on ports of all addresses;
# a policy-rc.d that answers 101 forbids that.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet
apt-get install --quiet --yes --no-install-recommends "${missing[@]}"

# Nor shall they start with the machine.
if command -v systemctl >/dev/null; then
	for service in squid:squid tinyproxy:tinyproxy dante-server:danted prometheus:prometheus containerd:containerd; do
		if [[ " ${missing[*]} " == *" ${service%:*} "* ]]; then
			systemctl --quiet disable "${service#*:}"
		fi
	done
fi
