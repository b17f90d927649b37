package app

import (
	"fmt"
	"os"
	"strings"

	"github.com/proxyfleet/fleet/cmd/proxyfleet/internal/smallfile"
	"github.com/proxyfleet/fleet/secret"
)

// tokenVariable is where the token comes from that no file holds.
const tokenVariable = "PROXYFLEET_TOKEN"

// readToken returns the token that a file or else the environment holds, or the zero value for none. One that is there but
// empty is an error: something else was meant than a fleet that is open to everybody.
func readToken(path string) (secret.Text, error) {
	if path == "" {
		token, set := os.LookupEnv(tokenVariable)
		if set && token == "" {
			return secret.Text{}, fmt.Errorf("%s is set but empty: give it the token, or unset it for none", tokenVariable)
		}
		return parseToken(tokenVariable, token)
	}
	content, err := smallfile.Read(path)
	if err != nil {
		return secret.Text{}, fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return secret.Text{}, fmt.Errorf("token file %s is empty: put the token into it", path)
	}
	return parseToken("token file "+path, token)
}

// maxToken leaves room for the rest of a request's header.
const maxToken = 8 << 10

// parseToken refuses what no request could bear, and says where it came from.
func parseToken(origin, token string) (secret.Text, error) {
	switch {
	case len(token) > maxToken:
		return secret.Text{}, fmt.Errorf("%s holds more than the %d bytes that a token may have", origin, maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return secret.Text{}, fmt.Errorf("%s holds characters that a header cannot carry: use printable ASCII without blanks", origin)
	}
	return secret.New(token), nil
}
