#!/bin/bash
# image.sh NAME: prints the path of an image that a node can import, and on a second line what it is called. NAME is "pause", which a
# pod is held by, or "squid": Debian's squid, where Ubuntu's image has it, with what it takes to run it and sh. It is built when there is
# none for these packages yet, without any registry. Images are kept in ${XDG_CACHE_HOME:-~/.cache}/proxyfleet-testenv; two that build
# at once wait for each other.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
name=$1
PATH=$PATH:/usr/sbin:/sbin
cache=${XDG_CACHE_HOME:-$HOME/.cache}/proxyfleet-testenv
mkdir -p "$cache"

# pause ends when it is told to, and reaps what it is left with.
pause() {
	cat >pause.c <<'C'
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int s) { (void)s; _exit(0); }
static void reap(int s) { (void)s; while (waitpid(-1, NULL, WNOHANG) > 0); }
int main(void) { signal(SIGINT, end); signal(SIGTERM, end); signal(SIGCHLD, reap); for (;;) pause(); }
C
	mkdir root
	gcc -Os -static -s -o root/pause pause.c
	tar -C root --owner=0 --group=0 --numeric-owner -cf layer.tar .
	config='{"Entrypoint": ["/pause"]}'
}

# squid is unpacked and no more: what Debian would have done to install it follows.
squid() {
	mmdebstrap --quiet --variant=extract --include=squid,dash,coreutils \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		bookworm layer.tar >&2
	mkdir -p root/{etc/squid,tmp} squid/var/{log,spool}/squid
	printf 'root:x:0:0:root:/root:/bin/sh\nproxy:x:13:13:proxy:/bin:/usr/sbin/nologin\n' >root/etc/passwd
	printf 'root:x:0:\nproxy:x:13:\n' >root/etc/group
	printf 'passwd: files\ngroup: files\nhosts: files dns\n' >root/etc/nsswitch.conf
	cat >root/etc/squid/squid.conf <<'C'
http_port 3128
http_access allow all
cache deny all
access_log none
cache_log /var/log/squid/cache.log
pid_filename none
shutdown_lifetime 1 seconds
C
	chmod 1777 root/tmp
	tar -C root --owner=0 --group=0 -rf layer.tar ./etc ./tmp
	tar -C squid --owner=13 --group=13 -rf layer.tar ./var/log/squid ./var/spool/squid
	config='{"Cmd": ["/usr/sbin/squid", "-N", "-f", "/etc/squid/squid.conf"]}'
}

# archive makes of the layer what "docker save" writes.
archive() {
	jq -cn --argjson config "$config" --arg layer "sha256:$(sha256sum layer.tar | cut -d' ' -f1)" --arg arch "$(dpkg --print-architecture)" \
		'{architecture: $arch, os: "linux", config: $config, rootfs: {type: "layers", diff_ids: [$layer]}}' >config.json
	jq -cn --arg ref "localhost/$name:test" '[{Config: "config.json", RepoTags: [$ref], Layers: ["layer.tar"]}]' >manifest.json
	tar -cf "$1" manifest.json config.json layer.tar
}

parts=
[[ $name == squid ]] && parts=$(apt-cache show --no-all-versions squid | grep -E '^(Package|Version):')
version=$(cat "$here/image.sh" <(echo "$parts") | sha256sum | cut -c1-16)
image=$cache/image-$name-$version.tar
exec {lock}>"$cache/image-$name-lock"
flock "$lock"
if [[ ! -e $image ]]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work"
	cd "$work"
	"$name"
	archive "$image.new"
	mv "$image.new" "$image"
	rm -f $(ls -t "$cache/image-$name"-*.tar | tail -n +3)
fi
printf '%s\n%s\n' "$image" "localhost/$name:test"
