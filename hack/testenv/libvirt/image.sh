#!/bin/bash
# image.sh: prints the path of the tiny guest's disk, a qcow2 image of about 30 MB that boots under BIOS and under UEFI. It is
# built from Debian's packages when there is none for them yet: Debian's cloud kernel, busybox, tinyproxy, and ./guest, which
# understands NoCloud seeds. Needs no root, no loop device and no mount. Images are kept in
# ${XDG_CACHE_HOME:-~/.cache}/proxyfleet-testenv; two that build at once wait for each other.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
PATH=$PATH:/usr/sbin:/sbin
cache=${XDG_CACHE_HOME:-$HOME/.cache}/proxyfleet-testenv
mkdir -p "$cache"

kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
version=$(cat "$here"/image.sh "$here"/guest/* <(echo "$kernel") | sha256sum | cut -c1-16)
image=$cache/tiny-$version.qcow2

exec {lock}>"$cache/lock"
flock "$lock"
if [[ -e $image ]]; then
	echo "$image"
	exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

apt-get download --quiet "$kernel" tinyproxy-bin >&2
dpkg-deb -x linux-image*.deb kernel
dpkg-deb -x tinyproxy-bin*.deb tinyproxy
(cd "$here/guest" && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$work/guest" .)

# The system: an initramfs and nothing else.
release=$(ls kernel/lib/modules)
depmod -b kernel "$release"
mkdir -p root/{bin,sbin,dev,proc,sys,run,tmp,mnt,m,usr/bin,usr/share,var/log/tinyproxy,lib64,lib/x86_64-linux-gnu,etc/acpi/PWRF}
cp /bin/busybox root/bin/busybox
ln -s busybox root/bin/sh
cp guest root/bin/guest
install -m 755 "$here/guest/init" root/init
install -m 755 "$here/guest/udhcpc.script" root/etc/udhcpc.script
printf '#!/bin/sh\npoweroff -f\n' >root/etc/acpi/PWRF/00000080
chmod 755 root/etc/acpi/PWRF/00000080
printf 'root:x:0:0:root:/:/bin/sh\ntinyproxy:x:100:100::/:/bin/false\n' >root/etc/passwd
printf 'root:x:0:\ntinyproxy:x:100:\n' >root/etc/group
echo 'hosts: files dns' >root/etc/nsswitch.conf
echo '127.0.0.1 localhost' >root/etc/hosts
cp -r tinyproxy/usr/bin/tinyproxy root/usr/bin/
cp -r tinyproxy/usr/share/tinyproxy root/usr/share/ 2>/dev/null || true
cp /lib/x86_64-linux-gnu/{libc.so.6,libnss_dns.so.2,libnss_files.so.2,libresolv.so.2} root/lib/x86_64-linux-gnu/
cp /lib64/ld-linux-x86-64.so.2 root/lib64/
for module in virtio_pci virtio_net virtio_blk virtio_scsi sr_mod sd_mod isofs ata_piix virtio-rng button evdev af_packet; do
	modprobe --dirname kernel --set-version "$release" --show-depends "$module" 2>/dev/null | awk '/^insmod/ {print $2}'
done | awk '!seen[$0]++' | while read -r file; do
	cp "$file" root/m/
	echo "/m/$(basename "$file")"
done >root/modules.order
(cd root && find . | cpio --quiet -o -H newc | gzip -9) >initrd.img

# The disk: one FAT partition, which SeaBIOS boots through syslinux, and OVMF through a kernel image at the removable path.
command_line="console=tty0 console=ttyS0,115200 panic=5"
echo "$command_line" >cmdline
printf 'ID=tiny\n' >os-release
objcopy --add-section .osrel=os-release --change-section-vma .osrel=0x20000 \
	--add-section .cmdline=cmdline --change-section-vma .cmdline=0x30000 \
	--add-section .linux="kernel/boot/vmlinuz-$release" --change-section-vma .linux=0x2000000 \
	--add-section .initrd=initrd.img --change-section-vma .initrd=0x3000000 \
	/usr/lib/systemd/boot/efi/linuxx64.efi.stub BOOTX64.EFI
megabytes=80 offset=$((2048 * 512))
truncate -s ${megabytes}M disk
printf 'label: dos\nstart=2048, type=ef, bootable\n' | sfdisk --quiet disk
mkfs.vfat -F 32 -n BOOT --offset 2048 disk $((megabytes * 1024 - offset / 1024)) >/dev/null
syslinux --install --offset $offset disk
dd if=/usr/lib/syslinux/mbr/mbr.bin of=disk conv=notrunc bs=440 count=1 status=none
printf 'SERIAL 0 115200\nDEFAULT l\nPROMPT 0\nTIMEOUT 0\nLABEL l\n LINUX /vmlinuz\n INITRD /initrd.img\n APPEND %s\n' \
	"$command_line" >syslinux.cfg
cp "kernel/boot/vmlinuz-$release" vmlinuz
partition=disk@@$offset
mmd -i $partition ::/EFI ::/EFI/BOOT
mcopy -i $partition BOOTX64.EFI ::/EFI/BOOT/
mcopy -i $partition vmlinuz initrd.img syslinux.cfg ::/
qemu-img convert -O qcow2 -c disk "$image.new"
mv "$image.new" "$image"
rm -f $(ls -t "$cache"/tiny-*.qcow2 | tail -n +4)
echo "$image"
