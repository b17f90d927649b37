package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/proxyfleet/fleet/secret"
)

// ErrSecretNotFound is in the tree of the error of [Secrets] for a Secret that is not there.
var ErrSecretNotFound = errors.New("secret not found")

// Secret is named data that does not print.
type Secret struct {
	Labels map[string]string
	Data   map[string]secret.Text
}

// Secrets are where the references of a spec lead. All methods may be called concurrently.
type Secrets interface {
	// Get returns the Secret of that name, or an error with [ErrSecretNotFound] in its tree. What it returns is not
	// changed by anybody.
	Get(ctx context.Context, namespace, name string) (Secret, error)
	// Watch calls fn with the name of each Secret that is there, then of each that appeared, changed or went, until ctx
	// ends (then nil) or the watch is lost for good. The calls at the start leave no gap for whoever read a Secret just
	// before. Changes coalesce; fn does not block.
	Watch(ctx context.Context, fn func(namespace, name string)) error
}

// Inputs are the resolved references of a spec.
type Inputs struct {
	CloudInit secret.Text
	Username  secret.Text
	Password  secret.Text
}

// InputError says that a reference of a spec could not be resolved. The fleet tries again when the Secret changes.
type InputError struct {
	// Reason is CloudInitError or CredentialsError: the reason of the condition Resolved.
	Reason string
	Err    error
}

// The reasons of an [InputError].
const (
	CloudInitError   = "CloudInitError"
	CredentialsError = "CredentialsError"
)

// Error says what could not be resolved.
func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *InputError) Unwrap() error { return e.Err }

// Resolve looks up what a spec refers to. Secrets is nil where there are none. A reference that leads nowhere is an
// [InputError].
func Resolve(ctx context.Context, secrets Secrets, namespace string, s Spec) (in Inputs, err error) {
	if c := s.CloudInit; c != nil {
		in.CloudInit = secret.New(c.Inline)
		if r := c.SecretRef; r != nil {
			if in.CloudInit, err = value(ctx, secrets, namespace, CloudInitLabel, *r); err != nil {
				return Inputs{}, &InputError{CloudInitError, err}
			}
		}
	}
	if s.Credentials == nil {
		return in, nil
	}
	ref := s.Credentials.SecretRef
	in.Username, err = value(ctx, secrets, namespace, CredentialsLabel, SecretKeyRef{ref.Name, cmp.Or(ref.UsernameKey, "username")})
	if err == nil {
		in.Password, err = value(ctx, secrets, namespace, CredentialsLabel, SecretKeyRef{ref.Name, cmp.Or(ref.PasswordKey, "password")})
	}
	if err != nil {
		return Inputs{}, &InputError{CredentialsError, err}
	}
	return in, nil
}

// value returns one value of a Secret that bears the label. One without the label is not there.
func value(ctx context.Context, secrets Secrets, namespace, label string, r SecretKeyRef) (secret.Text, error) {
	missing := fmt.Errorf("no Secret %s/%s that is labelled %s: \"true\": %w", namespace, r.Name, label, ErrSecretNotFound)
	if secrets == nil {
		return secret.Text{}, missing
	}
	s, err := secrets.Get(ctx, namespace, r.Name)
	switch {
	case errors.Is(err, ErrSecretNotFound), err == nil && s.Labels[label] != "true":
		return secret.Text{}, missing
	case err != nil:
		return secret.Text{}, fmt.Errorf("Secret %s/%s: %w", namespace, r.Name, err)
	}
	text, ok := s.Data[r.Key]
	if !ok {
		return secret.Text{}, fmt.Errorf("Secret %s/%s has no key %q: %w", namespace, r.Name, r.Key, ErrSecretNotFound)
	}
	return text, nil
}

// secretRefs names the Secrets that a spec refers to.
func secretRefs(s Spec) (names []string) {
	if s.CloudInit != nil && s.CloudInit.SecretRef != nil {
		names = append(names, s.CloudInit.SecretRef.Name)
	}
	if s.Credentials != nil {
		names = append(names, s.Credentials.SecretRef.Name)
	}
	return names
}
