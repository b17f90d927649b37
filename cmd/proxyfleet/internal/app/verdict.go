package app

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/proxyfleet/fleet/discovery/client"
)

// verdict says in a few sentences why a proxy is as it is, and what happens next.
func (e explanation) verdict() string {
	p := e.Proxy
	phase := p.Phase
	if p.Deleting {
		phase = "Deleting"
	}
	sentences := []string{fmt.Sprintf("%s/%s is %s: %s.", p.Namespace, p.Name, phase, e.cause(phase))}
	if next := e.next(phase); next != "" {
		sentences = append(sentences, next)
	}
	return printable(strings.Join(sentences, " "))
}

// cause is why a proxy is in its phase.
func (e explanation) cause(phase string) string {
	provisioned, resolved := e.condition("Provisioned"), e.condition("Resolved")
	if resolved.Status == "False" && phase != "Deleting" && phase != "Ready" {
		return "what it refers to cannot be used" + aside(resolved, phase)
	}
	switch phase {
	case "Ready":
		return e.readiness()
	case "Unhealthy":
		return "its probes fail" + aside(e.condition("Healthy"), phase)
	case "Probing":
		return "it is there, and its probes have not decided yet whether it works" + e.lastProbe()
	case "Provisioning":
		return "its instance is on its way" + aside(provisioned, phase)
	case "Replacing":
		return "its declaration wants another instance, and this one goes" + aside(provisioned, phase)
	case "Deleting":
		return "it is no longer declared, and its instance goes" + aside(provisioned, phase)
	case "Failed":
		return "it cannot be made" + aside(provisioned, phase)
	case "Pending":
		return "it has no instance yet" + aside(provisioned, phase)
	}
	return cmp.Or(why(e.Proxy), "nothing more is known")
}

// aside is what a condition says beside the phase.
func aside(c client.Condition, phase string) string {
	text := strings.TrimRight(cmp.Or(c.Message, c.Reason), ".")
	if text == "" || text == phase {
		return ""
	}
	return " (" + text + ")"
}

// lastProbe is how the last probe failed, if it did.
func (e explanation) lastProbe() string {
	if len(e.Probes) == 0 || e.Probes[0].OK {
		return ""
	}
	return "; the last one failed (" + joined(e.Probes[0].Party, e.Probes[0].Message) + ")"
}

// readiness says of a proxy that is Ready how far crawlers can have it.
func (e explanation) readiness() string {
	p := e.Proxy
	if e.Verdict == "unhealthy" {
		return "its probes fail by now, so it is not leased, and its phase follows" + e.lastProbe()
	}
	for _, c := range e.Cooldowns {
		if c.Target == "" && c.State == "cooling" {
			return fmt.Sprintf("its probes succeed, but it rests from every target, and is leased again %s", until(e.At, c.Until))
		}
	}
	open := len(e.Leases)
	if open >= int(p.MaxLeases) {
		return fmt.Sprintf("its probes succeed, and all of its %d leases are out", p.MaxLeases)
	}
	free := fmt.Sprintf("its probes succeed, and %d of its %d leases are free", int(p.MaxLeases)-open, p.MaxLeases)
	if note := cmp.Or(why(p), e.Problem); note != "" {
		free += "; " + note
	}
	return free
}

// next is what happens next, and what somebody can do about it.
func (e explanation) next(phase string) string {
	switch phase {
	case "Ready":
		return ""
	case "Unhealthy":
		return "It is leased again when they succeed."
	case "Deleting":
		if c := e.condition("Provisioned"); c.Reason == "" || c.Reason == phase {
			return e.due()
		}
		return e.due() + " " + e.command("skip-cleanup") + " lets go of it without deleting its instance."
	case "Failed", "Pending":
		at := e.nextPass()
		if e.Backoff.After(at) {
			at = e.Backoff
		}
		if at.IsZero() {
			return e.command("retry") + " tries now."
		}
		return fmt.Sprintf("The next attempt is due %s; %s tries now.", until(e.At, at), e.command("retry"))
	}
	return e.due()
}

// due says when the next pass is.
func (e explanation) due() string {
	if e.nextPass().IsZero() {
		return "The next look at it is due when something happens."
	}
	return "The next look at it is due " + until(e.At, e.nextPass()) + "."
}

// nextPass is when the next pass is due, or zero where only an event brings it.
func (e explanation) nextPass() time.Time {
	if e.LastPass == nil {
		return time.Time{}
	}
	return e.LastPass.Next
}

// command is a call of this program for the proxy.
func (e explanation) command(name string) string {
	call := "proxyfleet " + name + " " + e.Proxy.Name
	if e.Proxy.Namespace != "default" {
		call += " -n " + e.Proxy.Namespace
	}
	return `"` + call + `"`
}

func (e explanation) condition(kind string) client.Condition {
	for _, c := range e.Proxy.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return client.Condition{Type: kind}
}
