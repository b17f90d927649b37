package manifest

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/proxyfleet/fleet/proxy"
)

// Bounds of what is read.
const (
	maxFile     = 16 << 20
	maxExpanded = 2 * maxFile // of one file, by aliases
	maxSecret   = 1 << 20     // as in Kubernetes
	maxSecrets  = 16 << 20    // of a directory of secrets
	maxProblems = 100
)

// Set is what a fleet is declared to be.
type Set struct {
	// Configuration is nil where no document holds one.
	Configuration *Configuration
	Proxies       map[proxy.Key]proxy.Declaration
	// Secrets go by namespace and name, like proxies.
	Secrets map[proxy.Key]proxy.Secret

	places map[proxy.Key]place // of the proxies
	digest digest              // of what it was read from
}

// Load reads a set. Its error holds all problems, joined, each of them one line that names its place.
func Load(s Sources) (*Set, error) {
	return parse(s.read())
}

// place says where something is declared.
type place struct {
	file string
	// line is 0 where only the file is known, number counts documents from 1.
	line, number int
	// item counts the items of a List from 1.
	item    int
	subject string
}

// String returns the place as compilers write it: file:line: document 2, Proxy default/a.
func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	s := fmt.Sprintf("%s:%d: document %d", p.file, p.line, p.number)
	if p.item > 0 {
		s += fmt.Sprintf(", item %d", p.item)
	}
	if p.subject != "" {
		s += ", " + p.subject
	}
	return s
}

// builder makes a set of documents.
type builder struct {
	set      *Set
	problems []error
	taken    map[string]place // by subject: kind and name
}

// parse makes a set of what was read, or returns all that is wrong with it.
func parse(c contents) (*Set, error) {
	b := &builder{taken: map[string]place{}, set: &Set{
		Proxies: map[proxy.Key]proxy.Declaration{},
		Secrets: map[proxy.Key]proxy.Secret{},
		places:  map[proxy.Key]place{},
		digest:  c.digest,
	}}
	for _, f := range c.files {
		b.file(f)
	}
	b.directory(c.secrets)
	if len(b.problems) > 0 {
		return nil, errors.Join(b.problems...)
	}
	return b.set, nil
}

// problem notes what is wrong at a place. Joined errors become one each, nil none.
func (b *builder) problem(at place, problems ...error) {
	for _, err := range problems {
		joined, ok := err.(interface{ Unwrap() []error })
		switch {
		case err == nil:
		case ok:
			b.problem(at, joined.Unwrap()...)
		case len(b.problems) < maxProblems:
			b.problems = append(b.problems, fmt.Errorf("%v: %w", at, err))
		case len(b.problems) == maxProblems:
			b.problems = append(b.problems, errors.New("there are more problems"))
		}
	}
}

// first says whether nothing else has the subject of a place, and takes it.
func (b *builder) first(at place) bool {
	if other, twice := b.taken[at.subject]; twice {
		b.problem(at, fmt.Errorf("is declared twice; the other one is at %v", other))
		return false
	}
	b.taken[at.subject] = at
	return true
}

// file takes all documents of a file. One without any is refused: an editor or a full disk left it so, and it must not
// mean that everything in it is to be deleted.
func (b *builder) file(f file) {
	at := place{file: f.path}
	switch {
	case f.err != nil:
		b.problem(at, f.err)
		return
	case !utf8.Valid(f.data):
		b.problem(at, errors.New("is not UTF-8 text"))
		return
	}
	budget := maxExpanded
	for _, doc := range split([]byte(strings.TrimPrefix(string(f.data), "\ufeff"))) {
		at.line, at.number = doc.line, at.number+1
		v, problems := tree(doc.body, &budget)
		for _, err := range problems {
			where := at
			if e, ok := errors.AsType[*lineError](err); ok {
				where.line = max(doc.line, doc.first+e.line-1) // the parser is sometimes a line early
			}
			b.problem(where, err)
		}
		switch {
		case budget < 0:
			return
		case len(problems) > 0:
		case v == nil:
			at.number--
		default:
			b.document(at, v)
		}
	}
	if at.number == 0 {
		b.problem(at, errors.New("holds no document, and an emptied file deletes nothing: put the documents back, "+
			"or name the file no longer if it is not needed"))
	}
}
