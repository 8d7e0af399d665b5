package ucx

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

const regionBytes = 4 << 20 // bytes of a region that pieces are cut from

// pieceBytes are the sizes of pieces.
var pieceBytes = [...]int{8 << 10, maxCopy, maxMessage}

// region is registered memory.
type region struct {
	memory     []byte
	base, end  uintptr
	registered uintptr // ucp_mem_h
	release    func()  // unmaps the memory
}

// regionOf returns the region for memory that is not Go's.
func regionOf(memory []byte) region {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	return region{memory: memory, base: base, end: base + uintptr(len(memory))}
}

// mapRegion maps n bytes, all zero.
func mapRegion(n int) (region, error) {
	memory, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return region{}, fmt.Errorf("map %d bytes for messages: %w", n, err)
	}
	r := regionOf(memory)
	r.release = func() { _ = unix.Munmap(memory) } // cannot fail: it is a mapping of this process
	return r, nil
}

// lockedBytes is how much memory a process must be able to lock at least: UCX's own buffers, and those of messages to some dozens
// of ranks.
const lockedBytes = 64 << 20

// tryLimit locks n bytes, and releases them, if the limit (RLIMIT_MEMLOCK) is lower: the limit does not hold for root. It must be
// called before UCX is opened: if UCX cannot lock its own buffers, it tries forever (1.13, ud verbs).
func tryLimit(n int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur >= uint64(n) {
		return err
	}
	r, err := mapRegion(n)
	if err != nil {
		return err
	}
	defer r.release()
	if err := unix.Mlock(r.memory); err != nil {
		const advice = "`ulimit -l` is %d KiB: have it unlimited in jobs"
		return fmt.Errorf("lock %d MiB of memory, as a network card needs ("+advice+"): %w", n>>20, limit.Cur>>10, err)
	}
	return nil
}

// slab is all registered memory of a worker, and pieces of it for messages that are copied. The worker's mutex guards it.
type slab struct {
	regions []region                  // by address
	free    [len(pieceBytes)][][]byte // pieces of each size
	out     int                       // pieces that are taken
}

// search returns the index at which a region that begins at base is, or would be.
func (s *slab) search(base uintptr) (i int, found bool) {
	return slices.BinarySearchFunc(s.regions, base, func(r region, base uintptr) int { return cmp.Compare(r.base, base) })
}

func (s *slab) add(r region) {
	i, _ := s.search(r.base)
	s.regions = slices.Insert(s.regions, i, r)
}

// find returns the region that contains all of b, or nil.
func (s *slab) find(b []byte) *region {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	i, found := s.search(base)
	if !found {
		i--
	}
	if i < 0 || base+uintptr(len(b)) > s.regions[i].end {
		return nil
	}
	return &s.regions[i]
}

// piece takes an empty buffer with room for n bytes, at most maxMessage. If none is free, grow returns the memory of a new region.
// If that fails while other pieces are in use, piece returns nil without an error: pieces will become free.
func (s *slab) piece(n int, grow func() ([]byte, error)) ([]byte, error) {
	class := 0
	for pieceBytes[class] < n {
		class++
	}
	list, size := &s.free[class], pieceBytes[class]
	if len(*list) == 0 {
		memory, err := grow()
		if err != nil {
			if s.out > 0 {
				err = nil
			}
			return nil, err
		}
		for at := 0; at+size <= len(memory); at += size {
			*list = append(*list, memory[at:at:at+size])
		}
	}
	last := len(*list) - 1
	b := (*list)[last]
	*list = (*list)[:last]
	s.out++
	return b, nil
}

// put returns b to the free pieces, if it is a piece.
func (s *slab) put(b []byte) {
	if class := slices.Index(pieceBytes[:], cap(b)); class >= 0 {
		s.out--
		s.free[class] = append(s.free[class], b[:0])
	}
}
