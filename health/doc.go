// Package health probes proxies through themselves and keeps a verdict on each.
//
// An [Engine] is fed: whoever knows the fleet tells it each proxy as a [Target] with [Engine.Set] and takes it back with
// [Engine.Remove]. While [Engine.Run] runs, the engine probes each target once per interval, counts results against the
// target's thresholds, and sends the target's key on [Engine.Events] when there is something new to tell. The receiver
// reads what it is with [Engine.Snapshot]. The engine writes nothing anywhere, and it forgets everything when it goes.
//
// A probe is whatever the configured [Prober] does. [HTTPProber] requests a URL through the proxy and says who failed, so
// that a person who reads "proxy_auth" looks at the password and not at the network.
package health
