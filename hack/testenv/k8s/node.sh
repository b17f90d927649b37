#!/bin/bash
# node.sh DIR N ARCHIVE…: one real Kubernetes node in namespaces of its own, in the foreground: containerd, with the images of the
# archives, and a kubelet.
#
# It is a machine within the machine: its own network, mounts and processes, and kernel settings that only seem to change. The wire
# to it has 10.198.N.1 at this side and 10.198.N.2 at its own; pods are in 10.199.N.0/24, reach 10.198.N.1 and nothing else. It
# ends, with all of it, on SIGTERM and when its standard input ends: then it does not outlive whoever started it. DIR has
#
#   node.kubeconfig        of system:node:node1, for an API server that is reached at 10.198.N.1
#   kubelet.crt, .key      the kubelet's own, for 10.198.N.2
#   ca.crt                 whose certificates the kubelet believes
#   api                    the address of the API server: pods reach it at 10.96.0.1:443 as well
#
# and gets node.wired once this side of the wire is up, containerd.log, kubelet.log and pods/, the logs of containers. As root, on
# Debian, with what hack/install-test-deps.sh installs.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
dir=$1 n=$2
PATH=$PATH:/usr/sbin:/sbin
name=pfnode$n

# Of the kubelet's control groups only these are outside: one folder in each hierarchy.
groups() {
	local hierarchy
	for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
		[[ -e $hierarchy/cgroup.procs ]] && echo "$hierarchy/$name"
	done
}
remove() {
	local group
	ip link del "$name" 2>/dev/null || true
	for group in $(groups); do
		if [[ -d $group ]]; then
			find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
		fi
	done
}

outer=
leader=
finish() {
	if [[ -n $outer ]]; then
		kill -KILL "$outer" 2>/dev/null || true
	fi
	for _ in {1..500}; do
		[[ -n $leader && -d /proc/$leader ]] || break
		sleep 0.02
	done
	remove
}
trap finish EXIT
trap 'exit 0' TERM INT HUP
remove # what a node has left that was killed along with its script
mkdir -p $(groups)

mkfifo "$dir/wire"
exec {input}<&0
unshare --net --mount --pid --fork --kill-child=SIGKILL --mount-proc --propagation private \
	bash "$here/inside.sh" "$@" {input}<&- &
outer=$!
{
	read -r -u "$input" _ || true
	kill -KILL "$outer" 2>/dev/null
} &

for _ in {1..200}; do
	leader=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null || true)
	leader=${leader% }
	[[ -n $leader ]] && break
	sleep 0.02
done
ip link add "$name" type veth peer name eth0 netns "$leader"
ip addr add "10.198.$n.1/24" dev "$name"
ip link set "$name" up
ip route add "10.199.$n.0/24" via "10.198.$n.2"
touch "$dir/node.wired"
echo >"$dir/wire"
wait "$outer"
