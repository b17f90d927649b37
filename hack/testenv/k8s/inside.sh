#!/bin/bash
# inside.sh DIR N ARCHIVE…: what node.sh runs as the first process of a node.
set -euo pipefail
dir=$1 n=$2
shift 2
programs=$(readlink -f "$dir/programs")
name=pfnode$n

# Folders of its own over those of the machine, all in memory but what DIR holds.
mount --make-rshared /
for folder in /run /var/lib/kubelet /var/lib/cni /var/log/containers /opt; do
	mkdir -p "$folder"
	mount -t tmpfs -o mode=755 tmpfs "$folder"
done
# The kubelet sets these for the whole machine: it may have them, and set them in vain.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	file=/run/sysctl/$setting
	mkdir -p "${file%/*}"
	cat "/proc/sys/$setting" >"$file"
	mount --bind "$file" "/proc/sys/$setting"
done

read -r _ <"$dir/wire"
ip link set lo up
ip addr add "10.198.$n.2/24" dev eth0
ip link set eth0 up
echo 1 >/proc/sys/net/ipv4/ip_forward
iptables -t nat -A PREROUTING -d 10.96.0.1 -p tcp --dport 443 -j DNAT --to-destination "$(<"$dir/api")"

mkdir -p "$dir"/{cni,containerd,kubelet,pods}
cat >"$dir/cni/node.conflist" <<C
{"cniVersion": "0.4.0", "name": "node", "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true, "ipam": {"type": "host-local",
    "ranges": [[{"subnet": "10.199.$n.0/24"}]], "routes": [{"dst": "10.198.$n.0/24"}, {"dst": "10.96.0.1/32"}]}}]}
C
# Nobody here may ask for a better place when memory is short, or use AppArmor.
cat >"$dir/containerd.toml" <<C
version = 2
root = "$dir/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:test"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
C
containerd --config "$dir/containerd.toml" >"$dir/containerd.log" 2>&1 &
for _ in {1..500}; do
	ctr --address /run/containerd.sock version >/dev/null 2>&1 && break
	sleep 0.02
done
for archive; do
	ctr --address /run/containerd.sock --namespace k8s.io images import "$archive"
done

cat >"$dir/kubelet.yaml" <<C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 10.198.$n.2
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $dir/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $dir/kubelet.crt
tlsPrivateKeyFile: $dir/kubelet.key
containerRuntimeEndpoint: unix:///run/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$name
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
enforceNodeAllocatable: []
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
resolvConf: ""
podLogsDir: $dir/pods
C
"$programs/kubelet" --config="$dir/kubelet.yaml" --kubeconfig="$dir/node.kubeconfig" --root-dir="$dir/kubelet" \
	--hostname-override=node1 --node-ip="10.198.$n.2" >"$dir/kubelet.log" 2>&1 &
wait -n
