// Package discovery serves the HTTP API of a fleet: crawlers in any language find proxies, lease them, renew, release and
// report, and an operator sees why a proxy is not Ready.
//
// [New] makes an [http.Handler] of a [proxy.Store] and a [lease.Store]; what else a fleet can show and do, such as explaining a
// proxy and sweeping, is told by functions of the [Config]. Every answer is JSON but the pages for people and those of
// /healthz, /readyz and /v1/backup; every error of the API is an object with a stable code in "error" and a sentence in
// "message". What it shows of a proxy never holds a credential: only the URL of a lease that was granted or renewed does.
//
// The handler knows nothing of sockets. Whoever serves it decides on addresses and TLS, and gives its [http.Server] a
// ReadHeaderTimeout and a ReadTimeout, for a body is at most 64 KiB and may still take for ever, and a WriteTimeout. A
// backup moves its write deadline on as long as its reader keeps up, and a sweep has minutes; an explanation takes at most 15
// seconds, and everything else is answered at once.
//
// Of several replicas one leads. The others are handlers too: they show the proxies by themselves, and hand on to the leader what
// only that one knows.
//
// Package client is the Go client.
package discovery
