package wire

import "math"

// skipVariant passes over a Variant of any kind and checks its form.
func (r *Reader) skipVariant() {
	if !r.enter() {
		return
	}
	defer r.leave()
	mask := r.Uint8()
	k := mask & 0x3F
	if mask&0xC0 == 0x40 || k > 31 {
		r.Fail(ErrValue)
		return
	}
	if mask&0x80 == 0 {
		if k == 24 { // a Variant may hold an array of Variants, but no Variant (Part 6, 5.2.2.16)
			r.Fail(ErrValue)
			return
		}
		r.SkipBuiltin(k)
		return
	}
	if k == 0 {
		r.Fail(ErrValue)
		return
	}
	n := r.Count(leastSize(k))
	if size := fixedSize(k); size > 0 {
		r.take(max(n, 0) * size)
	} else {
		for i := 0; i < n && r.err == nil; i++ {
			r.SkipBuiltin(k)
		}
	}
	if mask&0x40 != 0 {
		r.skipDimensions(n)
	}
}

// skipDimensions passes over ArrayDimensions, whose product must be n.
func (r *Reader) skipDimensions(n int) {
	d := r.Count(4)
	if d <= 0 {
		return
	}
	product := uint64(1)
	for range d {
		product = r.dimension(product, r.Int32())
	}
	r.checkProduct(product, n)
}

// dimension is product*d, and refuses what cannot be a number of elements.
func (r *Reader) dimension(product uint64, d int32) uint64 {
	if d < 0 || product > math.MaxInt32 {
		r.Fail(ErrValue)
		return 0
	}
	return product * uint64(d)
}

func (r *Reader) checkProduct(product uint64, n int) {
	if product != uint64(max(n, 0)) {
		r.Fail(ErrValue)
	}
}

// fixedSize is the size of a built-in type on the wire; 0: it varies.
func fixedSize(k uint8) int {
	switch k {
	case 1, 2, 3:
		return 1
	case 4, 5:
		return 2
	case 6, 7, 10, 19:
		return 4
	case 8, 9, 11, 13:
		return 8
	case 14:
		return 16
	}
	return 0
}

// leastSize is the least size of a built-in type on the wire.
func leastSize(k uint8) int {
	switch k {
	case 12, 15, 16, 26, 27, 28, 29, 30, 31:
		return 4
	case 17, 18:
		return 2
	case 20:
		return 6
	case 22:
		return 3
	}
	return max(fixedSize(k), 1)
}

// SkipBuiltin passes over one value of the built-in type k, and checks its form (Part 6, 5.1.2).
func (r *Reader) SkipBuiltin(k uint8) {
	switch k {
	case 0:
	case 12, 15, 16, 26, 27, 28, 29, 30, 31: // the last six are kept for later types, as ByteStrings (Part 6, 5.2.2.16)
		r.ByteString()
	case 17:
		r.NodeID()
	case 18:
		r.ExpandedID()
	case 20:
		r.QualifiedName()
	case 21:
		r.LocalizedText()
	case 22:
		r.Extension()
	case 23:
		r.skipDataValue()
	case 24:
		r.skipVariant()
	case 25:
		r.skipDiagnosticInfo()
	default:
		if fixedSize(k) == 0 {
			r.Fail(ErrValue)
			return
		}
		r.take(fixedSize(k))
	}
}

func (r *Reader) skipDataValue() {
	if !r.enter() {
		return
	}
	defer r.leave()
	mask := r.Uint8()
	if mask&0x01 != 0 {
		r.skipVariant()
	}
	if mask&0x02 != 0 {
		r.take(4)
	}
	if mask&0x04 != 0 {
		r.take(8)
	}
	if mask&0x10 != 0 {
		r.take(2)
	}
	if mask&0x08 != 0 {
		r.take(8)
	}
	if mask&0x20 != 0 {
		r.take(2)
	}
}

func (r *Reader) skipDiagnosticInfo() {
	if !r.enter() {
		return
	}
	defer r.leave()
	mask := r.Uint8()
	for _, bit := range []uint8{0x01, 0x02, 0x04, 0x08} { // SymbolicId, NamespaceUri, Locale, LocalizedText: an Int32 each
		if mask&bit != 0 {
			r.take(4)
		}
	}
	if mask&0x10 != 0 {
		r.ByteString()
	}
	if mask&0x20 != 0 {
		r.take(4)
	}
	if mask&0x40 != 0 {
		r.skipDiagnosticInfo()
	}
}
