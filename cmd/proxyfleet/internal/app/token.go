package app

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/proxyfleet/fleet/secret"
)

// tokenVariable is where the token comes from that no file holds.
const tokenVariable = "PROXYFLEET_TOKEN"

// maxToken is far more than a token has.
const maxToken = 64 << 10

// readToken returns the token that a file or else the environment holds, or the zero value for none. One that is there but
// empty is an error: something else was meant than a fleet that is open to everybody.
func readToken(path string) (secret.Text, error) {
	if path == "" {
		token, set := os.LookupEnv(tokenVariable)
		if set && token == "" {
			return secret.Text{}, fmt.Errorf("%s is set but empty: give it the token, or unset it for none", tokenVariable)
		}
		return secret.New(token), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return secret.Text{}, fmt.Errorf("token file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	switch {
	case err != nil:
		return secret.Text{}, fmt.Errorf("token file: %w", err)
	case len(bytes.TrimSpace(text)) == 0:
		return secret.Text{}, fmt.Errorf("token file %s is empty: put the token into it", path)
	}
	return secret.New(string(bytes.TrimSpace(text))), nil
}
