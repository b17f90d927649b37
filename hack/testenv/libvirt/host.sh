#!/bin/bash
# host.sh DIR: one real hypervisor in namespaces of its own, in the foreground: libvirtd with QEMU, reached through sshd.
#
# It is a machine within the machine: its own network (10.98.N.0/24, guests in 10.99.N.0/24), mounts, users and processes. It ends,
# with all of it, on SIGTERM and, where its standard input is a pipe, when that ends: then it does not outlive whoever started it.
# DIR is a folder of its own and gets
#
#   env                    ADDRESS of sshd, its HOST's address, GATEWAY (this side of the wire), POOL, GUESTS, and LEADER, the
#                          process whose namespaces they are; written last
#   id, other, encrypted   keys: of user fleet, of nobody, and id behind a passphrase
#   known_hosts, host_key  what the host is known by, and its key
#   libvirtd.pid, sshd.pid process ids, as those inside see them
#   libvirtd.log, sshd.log, host.log
#
# Users: fleet may use libvirt, outsider may not. As root, on Debian, with what hack/install-test-deps.sh installs.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
dir=$(readlink -f "$1")
PATH=$PATH:/usr/sbin:/sbin

# The number of the host: the first that no living one holds. The lock is held for as long as this process lives.
number() {
	mkdir -p /run/lock/proxyfleet-hosts
	for n in {1..200}; do
		exec {lock}>"/run/lock/proxyfleet-hosts/$n"
		if flock --nonblock "$lock" && ! ip link show "pfhost$n" >/dev/null 2>&1; then
			return
		fi
		exec {lock}>&-
	done
	echo "no number is free" >&2
	exit 1
}

keys() {
	for name in id other host_key; do
		ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$dir/$name"
	done
	cp "$dir/id" "$dir/encrypted"
	ssh-keygen -q -p -N 'a passphrase' -f "$dir/encrypted"
	echo "10.98.$n.2 $(cut -d' ' -f1,2 "$dir/host_key.pub")" >"$dir/known_hosts"
}

number
keys
mkfifo "$dir/wired"
exec 3<&0
# The inner processes hold the lock as well, so that it goes with the last of them.
unshare --net --mount --pid --fork --kill-child=SIGKILL --mount-proc --propagation private \
	bash "$here/inside.sh" "$dir" "$n" >"$dir/host.log" 2>&1 3<&- &
outer=$!
trap 'kill -KILL $outer 2>/dev/null || true' EXIT
trap 'exit 0' TERM INT
if [[ -p /dev/fd/3 ]]; then
	{
		read -r -u 3 _ || true
		kill -KILL $outer 2>/dev/null || true
	} &
fi

leader=
for _ in {1..200}; do
	leader=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null || true)
	leader=${leader% }
	[[ -n $leader ]] && break
	sleep 0.02
done
ip link add "pfhost$n" type veth peer name eth0 netns "$leader"
ip addr add "10.98.$n.1/24" dev "pfhost$n"
ip link set "pfhost$n" up
echo >"$dir/wired"
cat "$dir/wired" >/dev/null # all is up inside
ip route add "10.99.$n.0/24" via "10.98.$n.2"
cat >"$dir/env.new" <<E2
ADDRESS=10.98.$n.2:22
HOST=10.98.$n.2
GATEWAY=10.98.$n.1
GUESTS=10.99.$n.0/24
POOL=fleet
LEADER=$leader
E2
mv "$dir/env.new" "$dir/env"
wait $outer || true
