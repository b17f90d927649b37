// Package local is the provider whose instances are listeners of this process: forward proxies for HTTP and CONNECT, each
// on an address of its own from a configured range, and leaving from a source address of its own where one is given.
//
// # What lasts
//
// An instance is a file in the state directory: address, port, marks, incarnation, and of the credentials a salted slow
// hash. New reads the files, and Run opens the listeners; until it has, calls wait for it by their context, and when it has
// ended they are transient errors. So a restart changes nothing that the fleet sees. An address that somebody else has
// taken meanwhile keeps its instance in state Provisioning, with a reason, and every Get tries again; one that is no longer
// configured makes it Stopped, and the fleet replaces it. When Run is told to end it stops accepting, lets what is open
// finish for a few seconds, and closes the rest.
//
// A check ([provider.Checker]) says of each entry of the configuration whether its addresses are there and can be listened at,
// by trying those where no proxy listens.
//
// # What it is safe from
//
// It is no open proxy by accident: listeners are on loopback addresses, unless allowNonLoopback is set, and then each
// request needs credentials. And it is no way into the network of its host: every connection is judged by the address that
// it goes to, after the name has been resolved and before anything is sent. Unspecified, link-local, multicast and metadata
// addresses and the provider's own listeners are never reached; loopback and private ones, and those of the host, public or
// not, only if allowedDestinations has them, for all ports or for one. IPv4 addresses in IPv6 form are judged as what they
// stand for: mapped ones, 6to4, and NAT64 with its well-known prefix. A network with a NAT64 prefix of its own has to see to
// that itself, and so has one whose machines have public addresses: nothing tells a neighbour of the host from the rest of
// the Internet.
//
// Requests pass through as they came, without the headers that concern only the proxy: nothing is added that tells of it,
// and bodies are not recoded. An Upgrade takes CONNECT. A refused destination is a 403 with a Proxy-Status header, one that
// cannot be reached a 502, and one that does not answer a 504.
package local
