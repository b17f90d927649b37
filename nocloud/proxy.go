package nocloud

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"text/template"

	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"github.com/proxyfleet/fleet/secret"
)

// Proxy is the forward proxy that a machine is to run: Squid from the packages of Debian or Ubuntu. It stores nothing and
// tells targets nothing of its clients. It is never open to everybody, and never leads to link-local and metadata addresses.
type Proxy struct {
	// Name is that of the machine. The hash of the password is salted with it, so that two machines with one password do not
	// show it. Required.
	Name string
	// Port is where the proxy listens, on every address of the machine: 1 to 65535. Required.
	Port int
	// Username and Password are what the proxy asks its clients for. The user has no colon and no control character and does
	// not begin with '#' or a space, which Squid could not tell from other things; the password has no NUL. Both or neither is
	// set. Defaults to asking for nothing.
	Username, Password secret.Text
	// AllowedClients are the networks that may use the proxy. Required where it asks for no password; then none is wider than
	// a /8. Defaults to everybody who knows the password.
	AllowedClients []netip.Prefix
	// AllowedDestinations are the loopback, private and reserved networks that the proxy may lead to. Defaults to none.
	AllowedDestinations []netip.Prefix
}

var (
	//go:embed squid.conf.tmpl
	squidConf string
	//go:embed setup.sh.tmpl
	setup string
)

// VendorData returns a shell script that cloud-init runs at the end of the first boot. It is no cloud-config, because a key
// of the user's own document, such as runcmd, would replace the whole of that key, and the proxy with it. The script holds a
// hash of the password and not the password itself; it is the same for the same proxy. The error names everything that is
// wrong with p.
func VendorData(p Proxy) (secret.Text, error) {
	config, passwd, err := p.files()
	if err != nil {
		return secret.Text{}, err
	}
	script, err := fill("setup.sh", setup, struct{ Config, Passwd string }{config, passwd})
	return secret.New(script), err
}

// SquidFiles returns what Squid reads in /etc/squid, for machines that need no set-up: squid.conf, and passwd, which holds a
// hash of the password and is empty where the proxy asks for none. The error names everything that is wrong with p.
func SquidFiles(p Proxy) (config string, passwd secret.Text, err error) {
	config, line, err := p.files()
	if line != "" {
		line += "\n"
	}
	return config, secret.New(line), err
}

func (p Proxy) files() (config, passwd string, err error) {
	if err := p.Validate(); err != nil {
		return "", "", err
	}
	if passwd, err = p.passwd(); err != nil {
		return "", "", err
	}
	config, err = p.config()
	return config, passwd, err
}

// Validate returns all that is wrong with p at once. It quotes no secret.
func (p Proxy) Validate() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf("nocloud: "+format, args...)) }
	if p.Name == "" {
		wrong("Name is required")
	}
	if p.Port < 1 || p.Port > 65535 {
		wrong("Port must be 1 to 65535, not %d", p.Port)
	}
	if p.Username.IsZero() != p.Password.IsZero() {
		wrong("Username and Password go together")
	}
	if problem := unusable(p.Username.Reveal()); problem != "" {
		wrong("Username %s", problem)
	}
	if strings.Contains(p.Password.Reveal(), "\x00") {
		wrong("Password must have no NUL character")
	}
	if p.Username.IsZero() && len(p.AllowedClients) == 0 {
		wrong("AllowedClients is required where no password is asked for: the proxy would be open to everybody")
	}
	problems = append(problems, p.networkProblems()...)
	return errors.Join(problems...)
}

// networkProblems tells of networks that are none, and of clients that must not be served without a password.
func (p Proxy) networkProblems() []error {
	var problems []error
	for i, client := range p.AllowedClients {
		switch {
		case !client.IsValid():
			problems = append(problems, fmt.Errorf("nocloud: AllowedClients[%d] is no network", i))
		case client.Bits() < 8 && p.Username.IsZero():
			problems = append(problems, fmt.Errorf("nocloud: AllowedClients[%d], %v, is too many to serve without a password", i, client))
		}
	}
	for i, destination := range p.AllowedDestinations {
		if !destination.IsValid() {
			problems = append(problems, fmt.Errorf("nocloud: AllowedDestinations[%d] is no network", i))
		}
	}
	return problems
}

// unusable says why Squid's file of passwords cannot hold a user, or "". It does not quote the user.
func unusable(user string) string {
	switch {
	case strings.Contains(user, ":"):
		return "must have no colon, which separates it from the password"
	case strings.HasPrefix(user, "#"), strings.HasPrefix(user, " "):
		return "must not begin with '#' or a space, which mark a comment in Squid's file of passwords"
	case strings.ContainsFunc(user, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "must have no control character"
	}
	return ""
}

// passwd is the line of Squid's file of passwords, as crypt(3) wants it: SHA-512 with the customary 5,000 rounds.
func (p Proxy) passwd() (string, error) {
	if p.Username.IsZero() {
		return "", nil
	}
	hasher, err := shacrypt.New(shacrypt.WithSHA512(), shacrypt.WithIterations(shacrypt.IterationsDefaultOmitted))
	if err != nil {
		return "", err
	}
	digest, err := hasher.HashWithSalt(p.Password.Reveal(), p.salt())
	if err != nil {
		return "", errors.New("nocloud: Password cannot be hashed") // the cause might quote it
	}
	return p.Username.Reveal() + ":" + digest.Encode(), nil
}

func (p Proxy) salt() []byte {
	digest := sha256.Sum256([]byte(p.Name + "\x00" + p.Username.Reveal()))
	encoded := base64.RawStdEncoding.EncodeToString(digest[:])
	return []byte(strings.ReplaceAll(encoded, "+", "."))[:shacrypt.SaltLengthMax]
}

// config is Squid's configuration.
func (p Proxy) config() (string, error) {
	return fill("squid.conf", squidConf, struct {
		Port                                int
		Username                            bool
		AllowedClients, AllowedDestinations []netip.Prefix
	}{p.Port, !p.Username.IsZero(), p.AllowedClients, p.AllowedDestinations})
}

func fill(name, text string, values any) (string, error) {
	t, err := template.New(name).Parse(text)
	if err != nil {
		return "", err
	}
	var filled strings.Builder
	err = t.Execute(&filled, values)
	return filled.String(), err
}
