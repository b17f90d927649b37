#!/bin/bash
# inside.sh DIR N: what host.sh runs as the first process of a host.
set -euo pipefail
dir=$1 n=$2

# Folders of its own over those of the machine. QEMU runs as a user of its own, who must reach the disks.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/libvirt /run/sshd /run/lock
for folder in etc/libvirt var/lib/libvirt var/cache/libvirt var/log/libvirt; do
	mkdir -p "$dir/$folder"
done
cp -a /etc/libvirt/. "$dir/etc/libvirt/"
rm -rf "$dir"/etc/libvirt/{storage,qemu}

for folder in etc/libvirt var/lib/libvirt var/cache/libvirt var/log/libvirt; do
	mount --bind "$dir/$folder" "/$folder"
done
mkdir -p /var/lib/libvirt/{images/fleet,qemu,dnsmasq,boot,network} /var/log/libvirt/qemu
chown libvirt-qemu:kvm /var/lib/libvirt/qemu
chmod 711 /var/lib/libvirt /var/lib/libvirt/images
# A disk of its own for the pool, so that one can be filled up.
mount -t tmpfs -o mode=711,size=1g tmpfs /var/lib/libvirt/images/fleet

# Users of its own. An account whose password is "!" is refused by sshd, "*" only has none.
for file in passwd group shadow; do
	cp "/etc/$file" "$dir/$file"
	mount --bind "$dir/$file" "/etc/$file"
done
libvirt=$(getent group libvirt | cut -d: -f3)
for user in fleet:$((60000)) outsider:$((60001)); do
	name=${user%:*} id=${user#*:}
	mkdir -p "$dir/home/$name/.ssh"
	cp "$dir/id.pub" "$dir/home/$name/.ssh/authorized_keys"
	group=$id
	[[ $name == fleet ]] && group=$libvirt
	echo "$name:x:$id:$group::/home/$name:/bin/sh" >>/etc/passwd
	echo "$name:*:19000:0:99999:7:::" >>/etc/shadow
	chown -R "$id:$group" "$dir/home/$name"
	chmod 700 "$dir/home/$name" "$dir/home/$name/.ssh"
done
mount --bind "$dir/home" /home

# /dev/kvm may be there and not work, which libvirt would try again and again. These hosts emulate.
: >/run/nokvm
chmod 000 /run/nokvm
[[ -e /dev/kvm ]] && mount --bind /run/nokvm /dev/kvm

# There is neither systemd nor polkit here.
cat >>/etc/libvirt/libvirtd.conf <<C
unix_sock_group = "libvirt"
unix_sock_ro_perms = "0770"
unix_sock_rw_perms = "0770"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "3:file:$dir/libvirtd.log"
C
printf 'namespaces = []\nsecurity_driver = "none"\n' >>/etc/libvirt/qemu.conf

mkdir -p /etc/libvirt/qemu/networks/autostart
cat >/etc/libvirt/qemu/networks/default.xml <<C
<network><name>default</name><forward mode='route'/><bridge name='virbr0' stp='off' delay='0'/>
<ip address='10.99.$n.1' netmask='255.255.255.0'><dhcp><range start='10.99.$n.2' end='10.99.$n.254'/></dhcp></ip></network>
C
ln -s ../default.xml /etc/libvirt/qemu/networks/autostart/default.xml
mkdir -p /etc/libvirt/storage/autostart
cat >/etc/libvirt/storage/fleet.xml <<C
<pool type='dir'><name>fleet</name><target><path>/var/lib/libvirt/images/fleet</path></target></pool>
C
ln -s ../fleet.xml /etc/libvirt/storage/autostart/fleet.xml

cat >"$dir/sshd_config" <<C
ListenAddress 10.98.$n.2
HostKey $dir/host_key
PidFile $dir/sshd.pid
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowUsers fleet outsider
StrictModes no
MaxSessions 50
MaxStartups 100
C

read -r <"$dir/wired"
ip link set lo up
ip addr add "10.98.$n.2/24" dev eth0
ip link set eth0 up
ip route add default via "10.98.$n.1"

virtlogd --daemon
libvirtd --daemon --pid-file "$dir/libvirtd.pid"
for _ in {1..300}; do
	virsh --quiet net-info default 2>/dev/null | grep -q 'Active: *yes' && break
	sleep 0.1
done
/usr/sbin/sshd -f "$dir/sshd_config" -E "$dir/sshd.log"
until [[ -s $dir/sshd.pid ]]; do sleep 0.02; done # it listens from then on
echo >"$dir/wired"

# The first process buries the others' children.
while :; do
	sleep 1000 &
	wait $! || true
done
