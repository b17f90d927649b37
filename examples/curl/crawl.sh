#!/bin/bash
# Fetches a page through a leased proxy with curl and jq, and through another one if that is of no use.
#
#   crawl.sh URL TARGET
#
# The page goes to stdout; a line for each attempt, with status, URL and proxy, to stderr. FLEET is the URL of the fleet's API,
# and PROXYFLEET_TOKEN its token, if it has one.
set -euo pipefail
url=$1 target=$2
fleet=${FLEET:-http://127.0.0.1:8090}
page=$(mktemp)
trap 'rm -f "$page"' EXIT

# call METHOD PATH [BODY] calls the API. The token goes to curl on a pipe, because everybody sees the arguments of a process.
call() {
	curl -sf --max-time 40 -X "$1" "$fleet$2" ${3:+--data "$3"} -H @<(echo "Authorization: Bearer ${PROXYFLEET_TOKEN:-}")
}

for _ in 1 2 3; do
	lease=$(call POST /v1/leases "$(jq -n --arg target "$target" '{$target, waitSeconds: 30}')")
	id=$(jq -r .leaseID <<<"$lease")
	# The URL of the proxy holds its password, so it is in a configuration on a pipe.
	status=$(curl -s --max-time 60 -o "$page" -w '%{http_code}' -K <(jq -r '"proxy = " + (.proxy.url | @json)' <<<"$lease") "$url") || status=000
	case $status in
		000 | 407) result=failed ;; # no answer, or the proxy's own
		403) result=banned ;;
		429) result=rate_limited ;;
		*) result=ok ;;
	esac
	call POST "/v1/leases/$id/report" "{\"result\": \"$result\"}"
	call DELETE "/v1/leases/$id"
	jq -r --arg status "$status" --arg url "$url" '"\($status) \($url) \(.proxy.namespace)/\(.proxy.name)"' <<<"$lease" >&2
	if [[ $result == ok ]]; then
		cat "$page"
		exit
	fi
done
exit 1
