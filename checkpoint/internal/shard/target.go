package shard

// target is where the bytes of a piece go. The zero target takes nothing.
type target struct {
	offset int64 // in the piece, of dst's first byte
	dst    []byte
}

// whole is the place for bytes start to end of the piece; nil if not all of them are wanted.
func (t target) whole(start, end int64) []byte {
	if start < t.offset || end > t.offset+int64(len(t.dst)) {
		return nil
	}
	return t.dst[start-t.offset : end-t.offset]
}

// keep takes what is wanted of bytes of the piece that begin at start.
func (t target) keep(start int64, raw []byte) {
	end := min(start+int64(len(raw)), t.offset+int64(len(t.dst)))
	if from := max(start, t.offset); from < end {
		copy(t.dst[from-t.offset:], raw[from-start:end-start])
	}
}
