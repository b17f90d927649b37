package house

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// reveal is a function that may read a secret in clear.
type reveal struct {
	file     string
	function string // a method with its type, as in "Text.Equal"
	why      string
}

// reveals names every function that reads a secret in clear. A secret leaks where it is turned into text, so a reader who
// wants to know that none does reads these functions and no others. The first question about a new row is whether the
// secret could stay one until a function that is listed already.
var reveals = []reveal{
	{"secret/text.go", "Text.IsZero", "tells only whether there is one"},
	{"secret/text.go", "Text.Equal", "tells only whether two are the same"},
	{"hasher.go", "Hasher.stretch", "digests them by PBKDF2, so that a rotated secret replaces the instance"},
	{"wake.go", "wake.digest", "digests them with a seed of the process, so that a rotated secret wakes its proxies"},
	{"health/http_prober.go", "attempt.login", "shows the proxy that is probed its own credentials"},
	{"discovery/gate.go", "newGate", "digests the API's token once, so that comparing takes constant time"},
	{"discovery/leases.go", "showLease", "whoever was granted the lease needs the credentials; no other answer has them"},
	{"discovery/client/call.go", "Client.authorize", "shows the API its token"},
	{"cmd/proxyfleet/internal/app/lease.go", "documentOf", "prints the URL of a proxy to the one who leased it"},
	{"lease/endpoint.go", "Endpoint.RevealURL", "the crawler that holds the lease needs the credentials to use the proxy"},
	{"lease/leasehttp/attempt.go", "attempt.transport", "shows the proxy that is leased its own credentials"},
	{"nocloud/seed.go", "Seed.write", "writes the documents to the disk that the machine boots with"},
	{"nocloud/proxy.go", "Proxy.Validate", "refuses credentials that Squid cannot take"},
	{"nocloud/proxy.go", "Proxy.passwd", "hashes the password, which is all that the machine is told of it"},
	{"nocloud/proxy.go", "Proxy.salt", "salts the hash with the user's name"},
	{"nocloud/combine.go", "Combine", "joins two documents that are secret into one that is"},
	{"nocloud/combine.go", "boundaryOf", "digests the documents, so that what separates them is in neither"},
	{"provider/local/login.go", "newGateFor", "digests the credentials, which is all that the proxy keeps of them"},
	{"provider/gcp/metadata.go", "settings.metadata", "puts what sets up the proxy, and the user's cloud-init, into the metadata of a machine"},
	{"provider/gcp/metadata.go", "settings.oversize", "tells only whether a cloud-init document is large"},
	{"provider/pod/pod.go", "settings.secret", "puts the hash of the password into the Secret of a pod"},
	{"examples/provider/provider.go", "Provider.plan", "refuses credentials that its cloud cannot take"},
	{"examples/provider/provider.go", "Provider.Create", "tells the cloud the credentials that the proxy asks for"},
}

func TestReveals(t *testing.T) {
	s := loadSource(t)
	for _, problem := range s.revealProblems(reveals) {
		t.Error(problem)
	}
}

// revealProblems compares the uses of Text.Reveal outside tests and suites, which plant secrets to look for them, with a
// table of those that are allowed. It goes by names alone: whatever is called Reveal, or Reveal and more, hands a secret in
// clear to its caller.
func (s *source) revealProblems(allowed []reveal) []string {
	var problems []string
	var found []reveal
	for _, folder := range s.folders {
		if matches(suites, "./"+folder.path) {
			continue
		}
		for _, file := range folder.files {
			if file.isTest() {
				continue
			}
			for _, decl := range file.Decls {
				if use := revealedIn(decl); use != nil {
					this := reveal{file: file.path, function: functionName(decl)}
					found = append(found, this)
					if !slices.ContainsFunc(allowed, this.same) {
						problems = append(problems, fmt.Sprintf("%s: %s reveals a secret and is not in the table of those that may: "+
							"hand the secret on as it is, or add a row that says why it must be read here", s.at(use), this.function))
					}
				}
			}
		}
	}
	for _, row := range allowed {
		if !slices.ContainsFunc(found, row.same) {
			problems = append(problems, fmt.Sprintf("%s: %s reveals no secret: take it from the table", row.file, row.function))
		}
	}
	return problems
}

func (r reveal) same(other reveal) bool { return r.file == other.file && r.function == other.function }

// revealedIn returns the first use of a Reveal in a declaration, called or taken as a value, or nil.
func revealedIn(decl ast.Decl) ast.Node {
	var use ast.Node
	ast.Inspect(decl, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && use == nil && strings.HasPrefix(sel.Sel.Name, "Reveal") {
			use = sel
		}
		return use == nil
	})
	return use
}

func functionName(decl ast.Decl) string {
	fn, ok := decl.(*ast.FuncDecl)
	if !ok {
		return "a package-level declaration"
	}
	if of := receiver(fn); of != "" {
		return of + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func TestRevealProblems(t *testing.T) {
	s, _ := snippet(t, map[string]string{
		"a.go": `package p

func (c *Client) dial() { use(c.password.Reveal()) }
func (c *Client) print() {
	log(func() string { return c.password.Reveal() })
}
func value() { use(secret.Text.Reveal) }
var clear = password.Reveal()
func clean() { use(password) }
func Dial() { Client{}.RevealURL() }
`,
		"a_test.go": "package p\n\nfunc test() { password.Reveal() }\n",
	})
	const unlisted = " reveals a secret and is not in the table of those that may: " +
		"hand the secret on as it is, or add a row that says why it must be read here"
	want := []string{
		"a.go:5: Client.print" + unlisted,
		"a.go:7: value" + unlisted,
		"a.go:8: a package-level declaration" + unlisted,
		"a.go:10: Dial" + unlisted,
		"a.go: clean reveals no secret: take it from the table",
		"b.go: Client.dial reveals no secret: take it from the table",
	}
	got := s.revealProblems([]reveal{
		{"a.go", "Client.dial", ""},
		{"a.go", "clean", ""},
		{"b.go", "Client.dial", ""},
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
