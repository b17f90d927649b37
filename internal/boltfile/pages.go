package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The layout of a file of bbolt: pages, each with a header, in the byte order of the machine. The first two are metas, of
// which the valid one with the higher transaction counts. Others are nodes of a B+tree, or list the pages that are free. A
// bucket is an element of a leaf whose value begins with the page of its own tree, or with zero and holds its leaf itself.
const (
	headerSize  = 16 // id uint64, flags uint16, count uint16, overflow uint32
	elementSize = 16
	bucketSize  = 16 // root uint64, sequence uint64

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10

	flagBucket = 0x01 // of an element

	metaSize = 64
	magic    = 0xED0CDAED
	version  = 2

	firstNode = 2      // the pages before it are metas
	longCount = 0xFFFF // of a freelist: its first entry is the count
	noPages   = ^uint64(0)
)

func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
func u64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// meta is what a meta page says.
type meta struct {
	root, freelist, pages, tx uint64
}

// checker reads the pages of a file.
type checker struct {
	file     io.ReaderAt
	pageSize int64
	pages    uint64 // how many there are
	used     []bool // those that were met
}

func damaged(page uint64, what string) error { return fmt.Errorf("is damaged: page %d %s", page, what) }

// check reads all that the newest meta leads to: each page must be used once or free.
func (c *checker) check(size int64) error {
	m, err := c.newest()
	if err != nil {
		return err
	}
	if m.pages < firstNode || m.pages > uint64(size/c.pageSize) {
		return fmt.Errorf("is cut short: it has %d bytes of its %d pages of %d bytes", size, m.pages, c.pageSize)
	}
	c.pages, c.used = m.pages, make([]bool, m.pages)
	if err := c.node(m.root, nil, nil); err != nil {
		return err
	}
	if err := c.freelist(m.freelist); err != nil {
		return err
	}
	for id := uint64(firstNode); id < c.pages; id++ {
		if !c.used[id] {
			return damaged(id, "is neither used nor free")
		}
	}
	return nil
}

// newest returns the meta that bbolt goes by.
func (c *checker) newest() (best meta, err error) {
	found := false
	for id := range int64(firstNode) {
		m, ok, err := c.meta(id)
		if err != nil {
			return meta{}, err
		}
		if ok && (!found || m.tx > best.tx) {
			best, found = m, true
		}
	}
	if !found {
		return meta{}, errors.New("is damaged: neither of its meta pages is valid")
	}
	return best, nil
}

func (c *checker) meta(id int64) (m meta, ok bool, err error) {
	b := make([]byte, metaSize)
	if _, err := c.file.ReadAt(b, id*c.pageSize+headerSize); err != nil {
		return m, false, err
	}
	sum := fnv.New64a()
	sum.Write(b[:56])
	ok = u32(b) == magic && u32(b[4:]) == version && u64(b[56:]) == sum.Sum64()
	return meta{root: u64(b[16:]), freelist: u64(b[32:]), pages: u64(b[40:]), tx: u64(b[48:])}, ok, nil
}

// page is the bytes of a page with those that it flows over into.
type page struct {
	id    uint64
	flags uint16
	count int
	bytes []byte
}

func parsePage(id uint64, b []byte) page {
	return page{id: id, flags: u16(b[8:]), count: int(u16(b[10:])), bytes: b}
}

// read reads a page and marks it used.
func (c *checker) read(id uint64) (page, error) {
	head := make([]byte, headerSize)
	if id < firstNode || id >= c.pages {
		return page{}, damaged(id, "is out of range")
	}
	if _, err := c.file.ReadAt(head, int64(id)*c.pageSize); err != nil {
		return page{}, err
	}
	more := uint64(u32(head[12:]))
	if u64(head) != id || more >= c.pages-id {
		return page{}, damaged(id, "has a wrong header")
	}
	for i := id; i <= id+more; i++ {
		if err := c.use(i); err != nil {
			return page{}, err
		}
	}
	b := make([]byte, int64(more+1)*c.pageSize)
	if _, err := c.file.ReadAt(b, int64(id)*c.pageSize); err != nil {
		return page{}, err
	}
	return parsePage(id, b), nil
}

func (c *checker) use(id uint64) error {
	if c.used[id] {
		return damaged(id, "is used twice")
	}
	c.used[id] = true
	return nil
}

// node reads a tree whose keys are at least low and below high; nil is no bound.
func (c *checker) node(id uint64, low, high []byte) error {
	p, err := c.read(id)
	if err != nil {
		return err
	}
	switch p.flags {
	case flagLeaf:
		return c.leaf(p, low, high)
	case flagBranch:
		return c.branch(p, low, high)
	}
	return damaged(id, "is of no known kind")
}

// element returns the n bytes that belong to element i of a page, from where pos says.
func (p page) element(i int, pos uint32, n uint64) ([]byte, error) {
	begin := uint64(headerSize+i*elementSize) + uint64(pos)
	if begin < uint64(headerSize+p.count*elementSize) || begin+n > uint64(len(p.bytes)) {
		return nil, damaged(p.id, "has an element that is not in it")
	}
	return p.bytes[begin : begin+n], nil
}

// elements calls fn with each element, whose keys must ascend within their bounds. Those of a branch have no value.
func (p page) elements(low, high []byte, leaf bool, fn func(head, key, value []byte) error) error {
	if headerSize+p.count*elementSize > len(p.bytes) {
		return damaged(p.id, "has too many elements")
	}
	for i := range p.count {
		head := p.bytes[headerSize+i*elementSize:][:elementSize]
		pos, keySize, valueSize := u32(head), u32(head[4:]), uint32(0)
		if leaf {
			pos, keySize, valueSize = u32(head[4:]), u32(head[8:]), u32(head[12:])
		}
		b, err := p.element(i, pos, uint64(keySize)+uint64(valueSize))
		if err != nil {
			return err
		}
		key, value := b[:keySize], b[keySize:]
		if low != nil && (bytes.Compare(key, low) < 0 || i > 0 && bytes.Equal(key, low)) || high != nil && bytes.Compare(key, high) >= 0 {
			return damaged(p.id, "has a key that is out of order")
		}
		low = key
		if err := fn(head, key, value); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) branch(p page, low, high []byte) error {
	type child struct {
		id  uint64
		key []byte
	}
	var children []child
	err := p.elements(low, high, false, func(head, key, _ []byte) error {
		children = append(children, child{u64(head[8:]), key})
		return nil
	})
	if err != nil {
		return err
	}
	if len(children) == 0 {
		return damaged(p.id, "leads nowhere")
	}
	for i, ch := range children {
		end := high
		if i+1 < len(children) {
			end = children[i+1].key
		}
		if err := c.node(ch.id, ch.key, end); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) leaf(p page, low, high []byte) error {
	return p.elements(low, high, true, func(head, _, value []byte) error {
		switch u32(head) {
		case 0:
			return nil
		case flagBucket:
			return c.bucket(p.id, value)
		}
		return damaged(p.id, "has an element of no known kind")
	})
}

// bucket reads a bucket that is an element of a page.
func (c *checker) bucket(id uint64, value []byte) error {
	if len(value) < bucketSize {
		return damaged(id, "has a bucket that is cut short")
	}
	if root := u64(value); root != 0 {
		return c.node(root, nil, nil)
	}
	if len(value) < bucketSize+headerSize {
		return damaged(id, "has a bucket that is cut short")
	}
	p := parsePage(id, value[bucketSize:])
	if p.flags != flagLeaf {
		return damaged(id, "has a bucket of no known kind")
	}
	return c.leaf(p, nil, nil)
}

// freelist reads the list of the pages that are free.
func (c *checker) freelist(id uint64) error {
	if id == noPages {
		return errors.New("is a database of another program: it has no list of free pages")
	}
	p, err := c.read(id)
	if err != nil {
		return err
	}
	count, entries := uint64(p.count), p.bytes[headerSize:]
	if p.flags != flagFreelist {
		return damaged(id, "is of no known kind")
	}
	if count == longCount {
		count, entries = u64(entries), entries[8:]
	}
	if count > uint64(len(entries)/8) {
		return damaged(id, "lists more pages than it holds")
	}
	for i := range count {
		free := u64(entries[i*8:])
		if free < firstNode || free >= c.pages {
			return damaged(id, "lists a page that is out of range")
		}
		if err := c.use(free); err != nil {
			return err
		}
	}
	return nil
}
