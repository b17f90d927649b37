#!/bin/bash
# full.sh: prints the path of the full guest's disk, a qcow2 image of about 150 MB that boots under UEFI: Debian 12 with the real
# cloud-init, an SSH server and the guest agent, and no proxy, much as Debian's own cloud image. It is built from Debian's packages
# when there is none for them yet, which takes minutes. Needs root, and no loop device. Images are kept in
# ${XDG_CACHE_HOME:-~/.cache}/proxyfleet-testenv; two that build at once wait for each other.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
PATH=$PATH:/usr/sbin:/sbin
cache=${XDG_CACHE_HOME:-$HOME/.cache}/proxyfleet-testenv
mkdir -p "$cache"

parts=$(apt-cache show --no-all-versions linux-image-cloud-amd64 cloud-init | grep -E '^(Package|Version):')
version=$(cat "$here/full.sh" <(echo "$parts") | sha256sum | cut -c1-16)
image=$cache/full-$version.qcow2

exec {lock}>"$cache/full-lock"
flock "$lock"
if [[ -e $image ]]; then
	echo "$image"
	exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The system. The initramfs holds no more than what finds the disk. There is nothing in it that would make this guest another
# one than the first: cloud-init, SSH's keys and the machine's identity begin anew.
cat >initramfs-modules <<'E'
virtio_pci
virtio_blk
virtio_scsi
sr_mod
ext4
E
nice -n 10 mmdebstrap --quiet --variant=minbase --mode=root \
	--aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--include=linux-image-cloud-amd64,initramfs-tools,systemd-sysv,systemd-resolved,dbus,udev,kmod,iproute2,netbase,e2fsprogs \
	--include=cloud-init,netplan.io,cloud-guest-utils,fdisk,sudo,openssh-server,qemu-guest-agent,ca-certificates \
	--essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" && echo MODULES=list >"$1/etc/initramfs-tools/conf.d/modules"' \
	--customize-hook='cp initramfs-modules "$1/etc/initramfs-tools/modules" && chroot "$1" update-initramfs -u' \
	--customize-hook='echo "LABEL=root / ext4 defaults,noatime 0 1" >"$1/etc/fstab"' \
	--customize-hook='echo LANG=C.UTF-8 >"$1/etc/default/locale"' \
	--customize-hook='chroot "$1" systemctl --quiet enable systemd-networkd' \
	--customize-hook='chroot "$1" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer' \
	--customize-hook='echo localhost >"$1/etc/hostname" && : >"$1/etc/machine-id" && rm -f "$1"/etc/ssh/ssh_host_*' \
	bookworm root >&2
ln -sf /run/systemd/resolve/stub-resolv.conf root/etc/resolv.conf

# The disk: a FAT partition with the kernel at the removable path, and the file system of the system.
release=$(ls root/lib/modules)
echo "root=LABEL=root ro console=tty0 console=ttyS0,115200" >cmdline
objcopy --add-section .osrel=root/usr/lib/os-release --change-section-vma .osrel=0x20000 \
	--add-section .cmdline=cmdline --change-section-vma .cmdline=0x30000 \
	--add-section .linux="root/boot/vmlinuz-$release" --change-section-vma .linux=0x2000000 \
	--add-section .initrd="root/boot/initrd.img-$release" --change-section-vma .initrd=0x3000000 \
	/usr/lib/systemd/boot/efi/linuxx64.efi.stub BOOTX64.EFI
truncate -s 2G disk
printf 'label: gpt\nstart=1MiB, size=63MiB, type=uefi\nstart=64MiB, size=1983MiB, type=linux\n' | sfdisk --quiet disk
mkfs.vfat -F 32 -s 1 -n ESP --offset 2048 disk $((63 * 1024)) >/dev/null
mmd -i disk@@1M ::/EFI ::/EFI/BOOT
mcopy -i disk@@1M BOOTX64.EFI ::/EFI/BOOT/
mke2fs -q -t ext4 -L root -d root -E offset=$((64 << 20)),root_owner=0:0 disk 1983M
nice -n 10 qemu-img convert -O qcow2 -c -o compression_type=zstd disk "$image.new"
mv "$image.new" "$image"
rm -f $(ls -t "$cache"/full-*.qcow2 | tail -n +3)
echo "$image"
