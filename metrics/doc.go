// Package metrics shows a fleet to Prometheus.
//
// [Metrics] is what the parts of a fleet tell of what happens: it is the Recorder of leases, probes, providers, sweeps, the
// API and the fleet itself. What is a state and no event, such as how many proxies are Ready, is read from its owner at
// each scrape, through [Sources]: a gauge that is counted up and down drifts.
//
// The labels are bounded. A proxy is one (namespace/name), and its series go when it goes. The target of a lease is none,
// for crawlers make up as many as they like. The page docs/observability.md describes every series.
package metrics
