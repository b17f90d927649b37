package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Class is what the fleet makes of an error. The set is closed. A class is an error itself, so that errors.Is finds it, and
// its text is the value of the metric label.
type Class string

// The classes.
const (
	// ErrNotFound: there is no such instance, or none of ours. From Get only.
	ErrNotFound Class = "not_found"
	// ErrTransient: it may work soon. The fleet tries again, with exponential backoff.
	ErrTransient Class = "transient"
	// ErrQuotaExceeded: there is no room. The fleet waits for minutes and calls it no failure.
	ErrQuotaExceeded Class = "quota_exceeded"
	// ErrPermanent: it will not work until somebody does something. The fleet latches it and tries again seldom, or at once
	// when the inputs change.
	ErrPermanent Class = "permanent"
	// ErrCanceled: the caller gave up. It says nothing about the provider; the fleet neither counts nor reports it.
	ErrCanceled Class = "canceled"
)

// Error returns the class as a word.
func (c Class) Error() string { return string(c) }

// The reasons that more than one provider needs. A provider may have others: CamelCase words that stay.
const (
	MissingField     = "MissingField"     // the request lacks a field that this provider needs
	UnsupportedField = "UnsupportedField" // the request has a field that this provider cannot honour
	NameTaken        = "NameTaken"        // an instance of that name has other marks
	NotConfigured    = "NotConfigured"    // the place of the ID is not in the configuration
)

// Error is what went wrong in one call of a provider.
type Error struct {
	// Op is the method, in lower case: plan, create, get, delete or list.
	Op    string
	Class Class
	// Reason is a stable word in CamelCase that says more than the class: it opens the message of the condition.
	Reason string
	// RetryAfter is how long the backend asks to wait. The fleet waits at least that long. Zero: it did not say.
	RetryAfter time.Duration
	// CreateFailed: a create was accepted and came to nothing. From Get only.
	CreateFailed bool
	// Err is the cause. It holds no secret.
	Err error
}

// Error returns the operation, the reason and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	for _, part := range []string{e.Reason, e.cause()} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	return b.String()
}

func (e *Error) cause() string {
	switch {
	case e.Err != nil:
		return e.Err.Error()
	case e.Reason == "":
		return string(e.Class)
	}
	return ""
}

// Unwrap returns the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

// ClassOf returns the class of an error: that of the first [Error] in its tree, [ErrCanceled] for a bare
// [context.Canceled], and else [ErrTransient]. Of nil it is "".
func ClassOf(err error) Class {
	if err == nil {
		return ""
	}
	if class, ok := errors.AsType[Class](err); ok && class != "" {
		return class
	}
	if errors.Is(err, context.Canceled) {
		return ErrCanceled
	}
	return ErrTransient
}

// Missing is the error of a request that lacks a field of the spec.
func Missing(op, field string) *Error {
	return &Error{Op: op, Class: ErrPermanent, Reason: MissingField, Err: fmt.Errorf("%s is required by this provider", field)}
}

// Unsupported is the error of a request with a field of the spec that the provider cannot honour.
func Unsupported(op, field string) *Error {
	return &Error{Op: op, Class: ErrPermanent, Reason: UnsupportedField, Err: fmt.Errorf("%s cannot be honoured by this provider; remove it", field)}
}

// Interrupted is the error of a call whose context has ended, and nil as long as it has not: [ErrCanceled] when the caller
// gave up, and [ErrTransient] when time ran out. A provider asks before it sends, and again when a call failed.
func Interrupted(ctx context.Context, op string) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	return &Error{Op: op, Class: ClassOf(err), Err: err}
}
