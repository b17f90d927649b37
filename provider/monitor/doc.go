// Package monitor asks every provider, once per interval, whether its backend can be used: see [provider.Checker].
//
// The verdicts are for operators. They are logged when they turn, read from [Monitor.Results] by metrics and APIs, and handed
// to a [Sink]. Nothing depends on them: a backend that is down makes neither the fleet nor any proxy unready.
package monitor
