// Package secret has one type: text that does not print. It imports nothing and sits below every other package, because
// the model, the provider contract and the lease store all carry credentials.
package secret

// redacted stands for every secret that is printed.
const redacted = "REDACTED"

// Text is a secret. However it is printed, marshalled or logged, it reads REDACTED; [Text.Reveal] is the only way out.
// The zero value is the empty secret.
//
// It holds a pointer because package fmt calls no methods on unexported fields: a plain string inside a printed struct
// would show.
type Text struct{ text *string }

// New makes a secret of s.
func New(s string) Text { return Text{&s} }

// Reveal returns the secret itself. Callers are few, and a test of the module names them all.
func (t Text) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// IsZero says whether the secret is empty.
func (t Text) IsZero() bool { return t.Reveal() == "" }

// Equal says whether two secrets are the same text. It takes no constant time: compare what a stranger sent by other
// means.
func (t Text) Equal(u Text) bool { return t.Reveal() == u.Reveal() }

// String returns REDACTED.
func (t Text) String() string { return redacted }

// GoString returns REDACTED.
func (t Text) GoString() string { return redacted }

// MarshalText returns REDACTED. Package log/slog goes by it, and so do encoding/json and YAML encoders.
func (t Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }
