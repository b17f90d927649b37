package house

import "testing"

const (
	// leaves are the packages that people take one by one.
	leaves = "./secret ./proxy ./provider ./provider/monitor ./health ./lease ./gc ./discovery ./nocloud"
	// implementations stand behind a contract, and whoever wants one names it.
	implementations = "./provider/local ./provider/pod ./provider/gcp ./provider/kvm ./provider/kvm2 " +
		"./store/bolt ./lease/boltlog ./controller ./metrics"
	// suites are conformance tests that happen to be importable.
	suites = "./proxy/storetest ./provider/providertest"
	// programs put the parts together.
	programs = "./cmd/... ./examples/..."
	// tracing is what a package needs that makes spans with a TracerProvider it is given.
	tracing = " go.opentelemetry.io/otel/trace go.opentelemetry.io/otel/trace/noop go.opentelemetry.io/otel/attribute go.opentelemetry.io/otel/codes"
)

// house is who may import whom. A package may import the standard library and what its row names; a package without a
// row fails, so that each new one is thought about once. What a row lets in brings its own dependencies along: those are
// for the bans. The table says what the design is. It is not edited to make a build pass.
var house = rules{
	rows: []row{
		{".", leaves + " k8s.io/client-go/util/workqueue" + tracing,
			"the root joins the leaves by a queue; whoever embeds it brings the implementations they want, and pays for no other"},

		{"./secret", "",
			"secret sits below every other package, because the model, the providers and the leases all carry credentials"},
		{"./proxy", "./secret",
			"the model and its contracts are everybody's vocabulary, so they cost nobody anything"},
		{"./provider", "./secret" + tracing,
			"the provider contract is what a stranger implements: it stands without the model, and its configuration is JSON, not YAML"},
		{"./health", "./secret golang.org/x/net/proxy" + tracing,
			"the probing engine is fed and lists nothing; only SOCKS needs a module"},
		{"./lease", "./secret",
			"a crawler author embeds the lease store alone, and nothing else comes along"},
		{"./gc", "./secret ./provider" + tracing,
			"the sweeper compares what providers list with records that it is handed"},
		{"./provider/monitor", "./secret ./provider" + tracing,
			"the monitor runs the checks that providers offer"},
		{"./discovery", "./secret ./proxy ./lease ./provider/monitor ./discovery/internal/wire go.opentelemetry.io/otel/propagation" + tracing,
			"the HTTP API shows proxies, leases and check results; what the root or the sweeper knows it takes through small interfaces of its own"},
		{"./nocloud", "./secret github.com/kdomanski/iso9660 github.com/go-crypt/crypt/algorithm/shacrypt",
			"the seed builder is the same for every provider; it needs a disk image and a hash that crypt(3) knows"},

		{"./proxy/storetest", "./secret ./proxy github.com/google/go-cmp/cmp github.com/google/go-cmp/cmp/cmpopts",
			"a suite knows the contract that it judges and no implementation"},
		{"./provider/providertest", "./secret ./provider github.com/google/go-cmp/cmp github.com/google/go-cmp/cmp/cmpopts",
			"a suite knows the contract that it judges and no implementation"},

		{"./discovery/internal/wire", "./secret",
			"server and client share the JSON of the API, and neither shall bring the other's imports along"},
		{"./discovery/client", "./secret ./lease ./discovery/internal/wire",
			"the client fulfils the lease contract over HTTP; a crawler that leases from a server needs no model and no server"},
		{"./lease/leasehttp", "./secret ./lease golang.org/x/net/publicsuffix golang.org/x/net/idna",
			"it serves the lease contract and works over any store of it"},
		{"./lease/boltlog", "./secret ./lease ./internal/boltfile go.etcd.io/bbolt/...",
			"it serves the log contract of lease, in a file of its own"},
		{"./store/bolt", "./secret ./proxy ./internal/boltfile go.etcd.io/bbolt/...",
			"a store serves the contract of proxy, and works without the reconciler"},
		{"./internal/boltfile", "go.etcd.io/bbolt/...",
			"two files are bbolt's, and neither shall be believed for want of the other's checks; what they hold is not its business"},
		{"./manifest", "./secret ./proxy sigs.k8s.io/yaml sigs.k8s.io/json go.yaml.in/yaml/v2 github.com/fsnotify/fsnotify",
			"documents become declarations and secrets of the model; who reconciles them is not its business"},

		{"./provider/local", "./secret ./provider github.com/elazarl/goproxy",
			"a provider knows its contract and its backend"},
		{"./provider/pod", "./secret ./provider ./nocloud k8s.io/...",
			"a provider knows its contract and its backend; the Squid in a pod is configured as that on a machine"},
		{"./provider/gcp", "./secret ./provider ./nocloud cloud.google.com/... google.golang.org/... github.com/googleapis/... " +
			"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp go.opentelemetry.io/otel/metric/noop go.opentelemetry.io/otel/propagation" + tracing,
			"a provider knows its contract and its backend; what otelhttp would take from global state it is given"},
		{"./provider/gcp/gcptest", "cloud.google.com/go/compute/apiv1/computepb google.golang.org/protobuf/...",
			"a backend to test against knows the messages of the API and nothing of the provider"},
		{"./provider/kvm", "./secret ./provider ./nocloud ./provider/internal/libvirt golang.org/x/crypto/ssh/... github.com/digitalocean/go-libvirt/...",
			"a provider knows its contract and its backend; what both libvirt providers need alike is shared, neither knows the other"},
		{"./provider/kvm2", "./secret ./provider ./nocloud ./provider/internal/libvirt golang.org/x/crypto/ssh/... github.com/digitalocean/go-libvirt/..." + tracing,
			"a provider knows its contract and its backend; what both libvirt providers need alike is shared, neither knows the other"},
		{"./provider/internal/libvirt", "./secret ./provider ./nocloud golang.org/x/crypto/ssh/... github.com/digitalocean/go-libvirt/... libvirt.org/go/libvirtxml",
			"a provider knows its contract and its backend; libvirt's own types of its XML spare us ours"},
		{"./provider/internal/libvirt/libvirttest", "./secret ./provider ./provider/providertest ./provider/internal/libvirt ./internal/hypervisor libvirt.org/go/libvirtxml",
			"both libvirt providers pass the same tests, over the same hypervisor; it knows neither"},

		{"./api/v1alpha1", "./secret ./proxy ./provider/monitor k8s.io/apimachinery/...",
			"the Kubernetes objects are thin wrappers round the model and the check result"},
		{"./controller", "./secret ./proxy ./provider/monitor ./api/v1alpha1 k8s.io/...",
			"it serves the store contract over the API server, and works without the reconciler"},
		{"./metrics", leaves + " github.com/prometheus/...",
			"it fulfils the recorder interfaces of the leaves; the root's has only plain types"},

		{"./internal/hypervisor", "",
			"it starts a hypervisor for tests"},
		{"./internal/cluster", "",
			"it starts a Kubernetes cluster for tests, and knows it by its programs alone"},
		{"./hack/testenv/k8s/cluster", "./internal/cluster",
			"it runs the cluster of the tests for somebody who tries things"},
		{"./internal/house ./internal/walk ./deploy", "",
			"they hold nothing but tests"},
		{"./hack/testenv/libvirt/guest", "sigs.k8s.io/yaml",
			"the tiny guest reads cloud-config, and is no part of the product"},
		{"./cmd/...", "...",
			"the binary joins everything"},
		{"./examples/...", "...",
			"an example shows how parts are joined"},
	},

	bans: []ban{
		{who: "./secret", never: "...",
			why: "it imports nothing at all, the standard library included, so that no package has a reason to avoid it"},
		{who: "./lease", never: "net/http",
			why: "a crawler that only leases links no HTTP stack for it; leasehttp is where HTTP comes in"},
		{who: "./...", except: ". " + programs, never: ".",
			why: "a part that needs the root cannot be taken alone"},
		{who: "./...", except: programs, never: implementations,
			why: "an implementation is chosen by who puts a program together, and by nobody on their behalf"},
		{who: ". " + leaves, never: "k8s.io/api/... k8s.io/apimachinery/pkg/apis/... k8s.io/apimachinery/pkg/runtime/... k8s.io/client-go/kubernetes/... " +
			"k8s.io/client-go/dynamic/... k8s.io/client-go/rest/... sigs.k8s.io/controller-runtime/... cloud.google.com/... google.golang.org/...",
			why: "a fleet on one machine links neither Kubernetes nor a cloud"},
		{who: "./...", except: "./metrics ./cmd/...", never: "github.com/prometheus/...",
			why: "packages tell their recorders, and the binary decides where the figures go"},
		{who: "./secret ./proxy ./lease", never: "go.opentelemetry.io/...",
			why: "they make no spans"},
		{who: "./...", except: "./provider/gcp ./cmd/...", never: "go.opentelemetry.io/otel go.opentelemetry.io/contrib/...",
			why: "the global package is state that a library must not touch, and it brings net/http and the propagators along; " +
				"gcp wraps the transport of its SDK"},
		{who: "./...", except: "./cmd/...", never: "go.opentelemetry.io/otel/sdk/... go.opentelemetry.io/otel/exporters/...",
			why: "who exports traces, and where to, is the binary's decision"},
		{who: "./...", except: suites + " ./provider/internal/libvirt/libvirttest ./examples/provider/cloud/cloudtest ./examples/internal/crawltest", never: "testing",
			why: "a package that imports testing puts its flags into every program"},
	},

	later: []string{},
}

func TestImports(t *testing.T) {
	for _, problem := range house.problems(loadGraph(t)) {
		t.Error(problem)
	}
}
