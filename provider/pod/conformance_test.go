package pod_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/proxyfleet/fleet/internal/cluster"
	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/pod"
	"github.com/proxyfleet/fleet/provider/providertest"
	"github.com/proxyfleet/fleet/secret"
)

// server is a real API server.
type server struct {
	*cluster.Cluster

	config *rest.Config
	api    kubernetes.Interface
	places atomic.Int64
}

// startServer starts a cluster, or skips the test where there can be none.
func startServer(t *testing.T, c cluster.Config) *server {
	t.Helper()
	started, err := cluster.Start(t.Context(), c)
	if err != nil {
		skip(t, err)
	}
	t.Cleanup(started.Close)
	config, err := clientcmd.BuildConfigFromFlags("", started.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{Cluster: started, config: config, api: api}
}

// skip ends a test for want of something that every machine of CI has.
func skip(t *testing.T, why error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// namespace makes one.
func (s *server) namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	ctx := t.Context()
	name := fmt.Sprintf("pods-%d-%d", os.Getpid(), s.places.Add(1))
	place := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := s.api.CoreV1().Namespaces().Create(ctx, place, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// open makes the provider of a fleet, with fields that differ from the usual ones.
func open(t testing.TB, fleet string, fields map[string]any) provider.Provider {
	t.Helper()
	config := map[string]any{"namespace": "proxies", "settle": "20s"}
	maps.Copy(config, fields)
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := pod.New(provider.Environment{Fleet: fleet}, raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func request() provider.Request {
	return provider.Request{Port: 3128, Credentials: provider.Credentials{
		Username: secret.New("crawler-of-the-suite"), Password: secret.New("s3cret-of-the-suite"),
	}}
}

// asked is a request of a fleet, ready to be sent.
func asked(fleet, uid string) provider.Request {
	r := request()
	r.Name = provider.Name(fleet, uid)
	r.Marks = provider.Marks{Fleet: fleet, UID: uid, Hash: "v1-0123456789abcdef"}
	r.Token = "token-of-" + uid
	return r
}

func testConformance(t *testing.T, s *server) {
	providertest.Run(t, func(t testing.TB) providertest.Harness {
		namespace := s.namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
		kubelet(t, s.api, namespace)
		g := before(t, s.config)
		file := kubeconfig(t, g.URL)
		return providertest.Harness{
			Open: func(t testing.TB, fleet string) provider.Provider {
				return open(t, fleet, map[string]any{"namespace": namespace, "kubeconfig": file})
			},
			Request:  request,
			Outlives: true,
			Settle:   20 * time.Second,
			Refused: map[string]func(*provider.Request){
				"placement.zone":        func(r *provider.Request) { r.Placement.Zone = "no zone" },
				"placement.machineType": func(r *provider.Request) { r.Placement.MachineType = "small" },
				"placement.image":       func(r *provider.Request) { r.Placement.Image = "squid:latest" },
				"placement.diskSizeGb":  func(r *provider.Request) { r.Placement.DiskSizeGb = 10 },
				"cloudInit":             func(r *provider.Request) { r.CloudInit = secret.New("#cloud-config planted") },
				"credentials":           func(r *provider.Request) { r.Credentials = provider.Credentials{} },
				"port":                  func(r *provider.Request) { r.Port = 80 },
			},
			Plant:  func(t testing.TB, r provider.Request) { s.plant(t, namespace, r) },
			Inject: func(f providertest.Fault) bool { return inject(g, f) },
		}
	})
}

// inject says how this backend does what the suite asks for. It has no lag.
func inject(g *gateway, f providertest.Fault) bool {
	faults := map[providertest.Fault]fault{
		providertest.CreateFails:      {method: "POST", path: "/pods", times: 1, status: 503},
		providertest.CreateUnanswered: {method: "POST", path: "/pods", times: 1, lose: true},
		providertest.GetFails:         {method: "GET", path: "/pods/", times: 1, status: 503},
		providertest.DeleteFails:      {method: "DELETE", path: "/pods/", times: 1, status: 500},
		providertest.DeleteUnanswered: {method: "DELETE", path: "/pods/", times: 1, lose: true},
		providertest.ListFails:        {method: "GET", path: "/pods", skip: 1, times: 1, status: 503},
		providertest.CheckFails:       {method: "GET", path: "/pods", status: 403, body: denied},
		providertest.Hangs:            {hang: true},
	}
	disturbance, ok := faults[f]
	if ok {
		g.inject(disturbance)
	}
	return ok
}

const denied = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Forbidden","code":403,"details":{"kind":"pods"},` +
	`"message":"pods is forbidden: User \"fleet\" cannot list resource \"pods\" in API group \"\" in the namespace \"proxies\""}`

// plant makes a pod as somebody else would who uses the same namespace.
func (s *server) plant(t testing.TB, namespace string, r provider.Request) {
	t.Helper()
	labels := map[string]string{"team": "another"}
	if r.Marks != (provider.Marks{}) {
		labels = labelsOf(r.Marks)
	}
	none := corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	planted := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "other", SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), Capabilities: &none,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}}}},
	}
	if _, err := s.api.CoreV1().Pods(namespace).Create(t.Context(), planted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func labelsOf(m provider.Marks) map[string]string {
	labels := map[string]string{}
	for key, value := range map[string]string{"managed": "true", "fleet": m.Fleet, "uid": m.UID, "hash": m.Hash} {
		labels[strings.Join([]string{"crawl.example.com", key}, "/")] = value
	}
	return labels
}
