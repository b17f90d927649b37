package lease

import (
	"bufio"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"io"
	"time"
)

// shelf keeps leases, each in a slot that its ID names, so that none has to be searched for: the first letters of an ID are
// the number of the slot, the others are random. A slot is used again once its lease is forgotten.
type shelf struct {
	blocks      []*[slotsPerBlock]slot // nil where none was needed yet
	free        *slot                  // the first of those without a lease; after leads to the next one
	first, last *slot                  // of the leases that have ended, in the order in which they are forgotten
	spare       []*held                // to be used again
	chance      *bufio.Reader          // random bytes
	random      [16]byte               // those of the next ID
}

// slot is what the store knows of a lease for as long as it keeps it: while it is open, and then for one cooldown window more,
// because a report may come late. Most leases that are kept have ended, so what only open ones need is elsewhere.
type slot struct {
	number  int
	id      string     // empty in a slot without a lease
	granted *Candidate // as it was when the lease was granted
	bare    bool       // granted is from the log, and has no more than the names
	target  string
	open    *held     // nil once it has ended
	forget  time.Time // when to forget it; zero while it is open
	after   *slot     // the one that ended next
}

const (
	slotsPerBlock = 1 << 10
	mostSpare     = 1 << 10

	letters       = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // five bits each
	numberLetters = 6
	secretLetters = 26
)

func newShelf() shelf { return shelf{chance: bufio.NewReader(rand.Reader)} }

// find returns the slot of a lease, or nil.
func (s *shelf) find(id string) *slot {
	number, ok := numberOf(id)
	if !ok || number/slotsPerBlock >= len(s.blocks) || s.blocks[number/slotsPerBlock] == nil {
		return nil
	}
	t := &s.blocks[number/slotsPerBlock][number%slotsPerBlock]
	if subtle.ConstantTimeCompare([]byte(t.id), []byte(id)) == 0 {
		return nil
	}
	return t
}

// findOpen returns an open lease, or nil.
func (s *shelf) findOpen(id string) *held {
	if t := s.find(id); t != nil {
		return t.open
	}
	return nil
}

// numberOf returns the number of the slot that an ID names, or false if it is no ID.
func numberOf(id string) (number int, ok bool) {
	if len(id) != numberLetters+secretLetters {
		return 0, false
	}
	for _, c := range []byte(id[:numberLetters]) {
		switch {
		case 'A' <= c && c <= 'Z':
			number = number<<5 | int(c-'A')
		case '2' <= c && c <= '7':
			number = number<<5 | int(c-'2'+26)
		default:
			return 0, false
		}
	}
	return number, true
}

// newID returns a name for the lease in a slot: its number, and 128 bits that nobody can guess.
func (s *shelf) newID(number int) string {
	_, _ = io.ReadFull(s.chance, s.random[:]) // never fails
	var id [numberLetters + secretLetters]byte
	spell(id[:numberLetters], uint64(number))
	spell(id[numberLetters:numberLetters+secretLetters/2], binary.NativeEndian.Uint64(s.random[:8]))
	spell(id[numberLetters+secretLetters/2:], binary.NativeEndian.Uint64(s.random[8:]))
	return string(id[:])
}

// spell writes a number in letters.
func spell(in []byte, number uint64) {
	for i := len(in) - 1; i >= 0; i-- {
		in[i], number = letters[number%32], number>>5
	}
}

// open puts a new lease into a slot, with a new ID unless it has one.
func (s *shelf) open(p *member) *held {
	if s.free == nil {
		s.link(s.block(len(s.blocks)))
	}
	t := s.free
	s.free, t.after = t.after, nil
	t.id, t.granted = s.newID(t.number), p.candidate
	return s.hold(t, p)
}

// hold makes the lease in a slot an open one.
func (s *shelf) hold(t *slot, p *member) *held {
	var h *held
	if last := len(s.spare) - 1; last >= 0 {
		h, s.spare = s.spare[last], s.spare[:last]
	} else {
		h = new(held)
	}
	h.slot, h.proxy = t, p
	t.open = h
	return h
}

// end notes that a lease has ended, and until when it is kept. Leases end in the order in which they are forgotten.
func (s *shelf) end(h *held, forget time.Time) {
	t := h.slot
	*h = held{}
	if len(s.spare) < mostSpare {
		s.spare = append(s.spare, h)
	}
	t.open = nil
	s.keep(t, forget)
}

// keep keeps a lease that has ended.
func (s *shelf) keep(t *slot, forget time.Time) {
	t.forget = forget
	if s.first == nil {
		s.first = t
	} else {
		s.last.after = t
	}
	s.last = t
}

// forget frees the slot of the first lease that is kept no longer, whose ID it returns, or nothing.
func (s *shelf) forget(now time.Time) (id string) {
	t := s.first
	if t == nil || t.forget.After(now) {
		return ""
	}
	id, s.first = t.id, t.after
	*t = slot{number: t.number, after: s.free}
	s.free = t
	return id
}

// claim returns the slot that an ID names, for the lease of that ID, or false if that is no ID or another lease is there. Before
// anything else is done to the shelf, ready must be called.
func (s *shelf) claim(id string) (t *slot, ok bool) {
	number, ok := numberOf(id)
	if !ok {
		return nil, false
	}
	t = &s.block(number / slotsPerBlock)[number%slotsPerBlock]
	if t.id != "" {
		return nil, false
	}
	t.id = id
	return t, true
}

// ready readies what was not claimed for new leases.
func (s *shelf) ready() {
	for _, block := range s.blocks {
		if block != nil {
			s.link(block)
		}
	}
}

// block returns a block, which is made if there is none.
func (s *shelf) block(at int) *[slotsPerBlock]slot {
	for len(s.blocks) <= at {
		s.blocks = append(s.blocks, nil)
	}
	if s.blocks[at] == nil {
		s.blocks[at] = new([slotsPerBlock]slot)
		for i := range s.blocks[at] {
			s.blocks[at][i].number = at*slotsPerBlock + i
		}
	}
	return s.blocks[at]
}

// link makes the slots of a block that have no lease free ones.
func (s *shelf) link(block *[slotsPerBlock]slot) {
	for i := range block {
		if t := &block[i]; t.id == "" {
			t.after, s.free = s.free, t
		}
	}
}
