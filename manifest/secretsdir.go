package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

// readSecrets reads a directory of secrets: dir/NAMESPACE/NAME/KEY.
func readSecrets(dir string) []file {
	r := secretsReader{left: maxSecrets}
	for _, namespace := range r.entries(dir, ".") {
		for _, name := range r.entries(filepath.Join(dir, namespace), ".") {
			r.secret(filepath.Join(dir, namespace, name), proxy.Key{Namespace: namespace, Name: name})
		}
	}
	return r.files
}

type secretsReader struct {
	files []file
	left  int // bytes that may still be read
}

// entries returns the names in a directory, in order, without those that begin with hidden.
func (r *secretsReader) entries(dir, hidden string) []string {
	all, err := os.ReadDir(dir)
	if err != nil {
		err = cannotRead(err)
		if info, e := os.Stat(dir); e == nil && !info.IsDir() {
			err = errors.New("is not a directory: secrets are files NAMESPACE/NAME/KEY")
		}
		r.files = append(r.files, file{path: dir, err: err})
	}
	var names []string
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), hidden) {
			names = append(names, e.Name())
		}
	}
	return names
}

// secret reads the keys of one Secret. Kubernetes keeps the values behind names that begin with two dots and swaps a
// link there, so that a Secret changes at once; the keys are links through it.
func (r *secretsReader) secret(dir string, name proxy.Key) {
	size := 0
	for _, key := range r.entries(dir, "..") {
		if r.left < 0 {
			return
		}
		f := file{path: filepath.Join(dir, key), secret: name, key: key}
		f.data, f.err = readFile(f.path, maxSecret)
		size += len(f.data)
		r.left -= len(f.data)
		switch {
		case size > maxSecret:
			f.err = fmt.Errorf("makes its Secret larger than %d MiB", maxSecret>>20)
		case r.left < 0:
			f.err = fmt.Errorf("makes the directory larger than %d MiB", maxSecrets>>20)
		}
		r.files = append(r.files, f)
	}
}

// directory takes the Secrets of the directory into the set.
func (b *builder) directory(files []file) {
	found := map[proxy.Key]proxy.Secret{}
	for _, f := range files {
		at := place{file: f.path}
		switch {
		case f.err != nil:
			b.problem(at, f.err)
			continue
		case !dnsLabel.MatchString(f.secret.Namespace) || !isSecretName(f.secret.Name) || !isSecretKey(f.key):
			b.problem(at, errors.New("must be NAMESPACE/NAME/KEY below the directory, each as Kubernetes allows it"))
			continue
		}
		s, begun := found[f.secret]
		if !begun {
			s = proxy.Secret{
				Labels: map[string]string{proxy.CloudInitLabel: "true", proxy.CredentialsLabel: "true"},
				Data:   map[string]secret.Text{},
			}
			found[f.secret] = s
			if b.first(place{file: filepath.Dir(f.path), subject: "Secret " + f.secret.String()}) {
				b.set.Secrets[f.secret] = s
			}
		}
		s.Data[f.key] = secret.New(string(f.data))
	}
}
