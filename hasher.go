package fleet

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strings"
	"sync"

	"github.com/proxyfleet/fleet/proxy"
	"github.com/proxyfleet/fleet/secret"
)

const (
	// hashVersion opens each hash of this release. A later release that hashes otherwise still knows how to compute this.
	hashVersion = "v1-"
	// stretch is the number of PBKDF2 iterations: about 2 ms for each secret that somebody guesses, and once for each proxy
	// of ours.
	stretch = 10_000
	// maxStretched bounds the cache. A fleet that is larger computes some digests more than once.
	maxStretched = 100_000
)

// Hasher computes the hash of the inputs that shape an instance: provider, placement, port, cloud-init and credentials. An
// instance whose mark has another hash is replaced. Attributes, maxLeases and healthCheck shape nothing.
//
// The hash is a label that others may read, so secrets enter it through PBKDF2, salted with the identity of the fleet and the
// UID of the proxy: nobody can guess a password from it at a reasonable price, and equal passwords do not show. All methods
// may be called concurrently.
type Hasher struct {
	fleet string

	mu        sync.Mutex
	stretched map[[sha256.Size]byte]string
}

// NewHasher makes a hasher for the fleet of that identity.
func NewHasher(fleet string) *Hasher {
	return &Hasher{fleet: fleet, stretched: map[[sha256.Size]byte]string{}}
}

// shape is what an instance is made from. Fields that are zero are left out, so that a field that a later release adds
// changes no hash of a spec that does not use it.
type shape struct {
	Provider  string          `json:"provider,omitempty"`
	Placement proxy.Placement `json:"placement,omitzero"`
	Port      int32           `json:"port,omitempty"`
	Secrets   string          `json:"secrets,omitempty"`
}

// Hash returns the hash of a spec with its resolved inputs: v1- and 32 hexadecimal digits.
func (h *Hasher) Hash(uid string, spec proxy.Spec, in proxy.Inputs) string {
	spec = spec.Canonical()
	return hashVersion + digest(shape{spec.Provider, spec.Placement, spec.Port,
		h.stretch(uid, in.CloudInit, in.Username, in.Password)})
}

// Matches says whether an instance with that mark was made from these inputs. A mark of a version that a later release
// introduced cannot be compared and counts as matching: to go back to an earlier release must replace nothing.
func (h *Hasher) Matches(mark, uid string, spec proxy.Spec, in proxy.Inputs) bool {
	return mark == h.Hash(uid, spec, in) || newer(mark)
}

// newer says whether a mark is v<number>- with a number above this release's.
func newer(mark string) bool {
	number, _, found := strings.Cut(strings.TrimPrefix(mark, "v"), "-")
	if !found || !strings.HasPrefix(mark, "v") || number == "" || number == "1" || number[0] == '0' {
		return false
	}
	return strings.Trim(number, "0123456789") == ""
}

// Endpoint returns the incarnation of an External proxy: another address, scheme or user is another proxy.
func (h *Hasher) Endpoint(uid string, e proxy.Endpoint, username secret.Text) string {
	return "external-" + digest(struct {
		Scheme proxy.Scheme
		Host   string
		Port   int32
		User   string
	}{e.Scheme, e.Host, e.Port, h.stretch(uid, username)})
}

// stretch returns a digest of secrets that is expensive to guess, "" when there are none.
func (h *Hasher) stretch(uid string, secrets ...secret.Text) string {
	var all []byte
	empty := true
	for _, s := range secrets {
		text := s.Reveal()
		empty = empty && text == ""
		all = binary.AppendUvarint(all, uint64(len(text)))
		all = append(all, text...)
	}
	if empty {
		return ""
	}
	salt := h.fleet + "\x00" + uid
	key := sha256.Sum256(append([]byte(salt+"\x00"), all...))
	if d, ok := h.remembered(key); ok {
		return d
	}
	derived, err := pbkdf2.Key(sha256.New, string(all), []byte(salt), stretch, 16) // takes a while, so without the lock
	if err != nil {
		panic("fleet: PBKDF2 refuses constant parameters: " + err.Error())
	}
	return h.remember(key, hex.EncodeToString(derived))
}

func (h *Hasher) remembered(key [sha256.Size]byte) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.stretched[key]
	return d, ok
}

func (h *Hasher) remember(key [sha256.Size]byte, d string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.stretched) >= maxStretched {
		clear(h.stretched)
	}
	h.stretched[key] = d
	return d
}

// digest returns 32 hexadecimal digits of a value's JSON.
func digest(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("fleet: a struct of strings and numbers does not marshal: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
