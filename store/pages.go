package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// bbolt maps its file into memory and trusts it: a page number out of the file is a fault that no recover stops, and a
// branch that points at itself fills the stack up. So the structure of a file is looked at here before bbolt sees it,
// by the format alone: every page that can be reached, every element within its page, keys in order, and no page both
// in use and free. Of values only those of buckets are looked at: blocks have sums of their own.
const (
	pageHead     = 16
	elementSize  = 16
	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketLeaf   = 0x01
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	metaSize     = 64 // without its page's head
	noFreelist   = 1<<64 - 1
)

var order = binary.LittleEndian // of the machines that edged runs on

// pages reads a bbolt file.
type pages struct {
	f        *os.File
	size     int64 // bytes
	pageSize int
	limit    uint64 // first page that is not in use
	root     uint64
	freelist uint64
	seen     map[uint64]bool
}

// inspect reports what is wrong with the structure of a bbolt file; nil: nothing is.
func inspect(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	p := &pages{f: f, size: info.Size(), seen: map[uint64]bool{}}
	if err := p.meta(); err != nil {
		return err
	}
	if err := p.walk(); err != nil {
		return err
	}
	return p.free()
}

// meta reads the newer of the two meta pages that are whole.
func (p *pages) meta() error {
	var newest uint64
	head := make([]byte, pageHead+metaSize)
	for _, at := range []int64{0, 4096, 8192, 16384, 65536} {
		if _, err := p.f.ReadAt(head, at); err != nil {
			continue
		}
		m := head[pageHead:]
		sum := fnv.New64a()
		sum.Write(m[:metaSize-8])
		size := order.Uint32(m[8:])
		if order.Uint32(m) != boltMagic || order.Uint32(m[4:]) != boltVersion || order.Uint64(m[metaSize-8:]) != sum.Sum64() ||
			size < 1024 || size > 65536 || at != 0 && at != int64(size) {
			continue
		}
		if txid := order.Uint64(m[48:]); p.pageSize == 0 || txid > newest {
			newest, p.pageSize = txid, int(size)
			p.root, p.freelist, p.limit = order.Uint64(m[16:]), order.Uint64(m[32:]), order.Uint64(m[40:])
		}
	}
	switch {
	case p.pageSize == 0:
		return fmt.Errorf("no page of it says what it is: %w", errDamaged)
	case p.limit > uint64(p.size)/uint64(p.pageSize):
		return fmt.Errorf("it is cut off: %d pages of %d bytes do not fit %d bytes: %w", p.limit, p.pageSize, p.size, errDamaged)
	}
	return nil
}

// read reads a page with those that belong to it.
func (p *pages) read(id uint64) ([]byte, error) {
	if id < 2 || id >= p.limit {
		return nil, fmt.Errorf("page %d is outside: %w", id, errDamaged)
	}
	b := make([]byte, p.pageSize)
	if _, err := p.f.ReadAt(b, int64(id)*int64(p.pageSize)); err != nil {
		return nil, err
	}
	over := uint64(order.Uint32(b[12:]))
	if order.Uint64(b) != id || over >= p.limit-id {
		return nil, fmt.Errorf("page %d is another: %w", id, errDamaged)
	}
	for i := uint64(0); i <= over; i++ {
		if p.seen[id+i] {
			return nil, fmt.Errorf("page %d is used twice: %w", id+i, errDamaged)
		}
		p.seen[id+i] = true
	}
	return b, nil
}

// whole is the page with those that belong to it, for whoever needs what lies behind the first.
func (p *pages) whole(id uint64, b []byte) ([]byte, error) {
	over := int(order.Uint32(b[12:]))
	if over == 0 {
		return b, nil
	}
	all := make([]byte, (over+1)*p.pageSize)
	_, err := p.f.ReadAt(all, int64(id)*int64(p.pageSize))
	return all, err
}

// walk looks at every page that can be reached from the root.
func (p *pages) walk() error {
	for todo := []uint64{p.root}; len(todo) > 0; {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		b, err := p.read(id)
		if err != nil {
			return err
		}
		if todo, err = p.elements(id, b, todo); err != nil {
			return err
		}
	}
	return nil
}

func (p *pages) elements(id uint64, b []byte, todo []uint64) ([]uint64, error) {
	wrong := func(what string) error { return fmt.Errorf("page %d: %s: %w", id, what, errDamaged) }
	kind, count := order.Uint16(b[8:]), int(order.Uint16(b[10:]))
	if kind != branchPage && kind != leafPage {
		return nil, wrong("neither branch nor leaf")
	}
	if kind == branchPage && count == 0 {
		return nil, wrong("an empty branch")
	}
	space := (int(order.Uint32(b[12:])) + 1) * p.pageSize
	if pageHead+count*elementSize > space {
		return nil, wrong("more elements than fit")
	}
	if pageHead+count*elementSize > len(b) {
		var err error
		if b, err = p.whole(id, b); err != nil {
			return nil, err
		}
	}
	var last []byte
	for i := range count {
		at := pageHead + i*elementSize
		e := b[at : at+elementSize]
		pos, key, value := uint64(order.Uint32(e)), uint64(order.Uint32(e[4:])), uint64(0)
		if kind == leafPage {
			pos, key, value = uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[8:])), uint64(order.Uint32(e[12:]))
		}
		from := uint64(at) + pos
		if from+key+value > uint64(space) || key > 1024 {
			return nil, wrong("an element is outside")
		}
		isBucket := kind == leafPage && order.Uint32(e)&bucketLeaf != 0
		need := from + key
		if isBucket {
			need += value
		}
		if need > uint64(len(b)) {
			var err error
			if b, err = p.whole(id, b); err != nil {
				return nil, err
			}
		}
		k := b[from : from+key]
		if i > 0 && bytes.Compare(last, k) >= 0 {
			return nil, wrong("keys out of order")
		}
		last = k
		switch {
		case kind == branchPage:
			todo = append(todo, order.Uint64(e[8:]))
		case isBucket:
			root, err := inlineBucket(b[from+key : from+key+value])
			if err != nil {
				return nil, wrong(err.Error())
			}
			if root != 0 {
				todo = append(todo, root)
			}
		}
	}
	return todo, nil
}

// inlineBucket looks at the value that is a bucket, and returns the page where it goes on; 0: it is whole.
func inlineBucket(v []byte) (root uint64, err error) {
	if len(v) < 16 {
		return 0, errors.New("a bucket is cut off")
	}
	if root = order.Uint64(v); root != 0 {
		return root, nil
	}
	v = v[16:]
	if len(v) < pageHead || order.Uint16(v[8:]) != leafPage {
		return 0, errors.New("a small bucket is no leaf")
	}
	count := int(order.Uint16(v[10:]))
	if pageHead+count*elementSize > len(v) {
		return 0, errors.New("a small bucket has more elements than fit")
	}
	for i := range count {
		at := pageHead + i*elementSize
		e := v[at : at+elementSize]
		if uint64(at)+uint64(order.Uint32(e[4:]))+uint64(order.Uint32(e[8:]))+uint64(order.Uint32(e[12:])) > uint64(len(v)) || order.Uint32(e) != 0 {
			return 0, errors.New("an element of a small bucket is outside")
		}
	}
	return 0, nil
}

// free looks at the list of pages that are not in use.
func (p *pages) free() error {
	if p.freelist == noFreelist {
		return nil
	}
	b, err := p.read(p.freelist)
	if err == nil {
		b, err = p.whole(p.freelist, b)
	}
	if err != nil {
		return err
	}
	wrong := fmt.Errorf("the list of free pages: %w", errDamaged)
	if order.Uint16(b[8:]) != freelistPage {
		return wrong
	}
	count, ids := uint64(order.Uint16(b[10:])), b[pageHead:]
	if count == 0xFFFF {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return wrong
	}
	for i := range count {
		id := order.Uint64(ids[i*8:])
		if id < 2 || id >= p.limit || p.seen[id] {
			return wrong
		}
		p.seen[id] = true
	}
	return nil
}

// salvage gives every key and value of a damaged bbolt file that a leaf may hold, old ones too, to one who knows by
// their sums which are whole.
func salvage(path string, each func(key, value []byte)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	const size = filePage
	var head [pageHead]byte
	for at := int64(2 * size); at+pageHead <= info.Size(); at += size {
		if _, err := f.ReadAt(head[:], at); err != nil {
			continue
		}
		over := int64(order.Uint32(head[12:]))
		if order.Uint64(head[:]) != uint64(at/size) || order.Uint16(head[8:]) != leafPage || over > (info.Size()-at)/size {
			continue
		}
		b := make([]byte, (over+1)*size)
		if n, err := f.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
			continue
		} else {
			b = b[:n]
		}
		for i := range int(order.Uint16(head[10:])) {
			e := pageHead + i*elementSize
			if e+elementSize > len(b) {
				break
			}
			from := uint64(e) + uint64(order.Uint32(b[e+4:]))
			key, value := uint64(order.Uint32(b[e+8:])), uint64(order.Uint32(b[e+12:]))
			if from+key+value <= uint64(len(b)) {
				each(b[from:from+key], b[from+key:from+key+value])
			}
		}
	}
	return nil
}
