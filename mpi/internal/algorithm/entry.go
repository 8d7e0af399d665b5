package algorithm

// Entry is one algorithm of a collective, whose function has the type F.
type Entry[F any] struct {
	Traits
	Run F
}

// Traits is what there is to know of an algorithm.
type Traits struct {
	Code      uint8  // its number in the header of frames: part of the wire's format
	Name      string // as users write it
	Canonical bool   // reductions: it keeps the canonical order. Others: true, they move bytes only

	// Fits tells whether a group of size ranks can use it; nil: any.
	Fits func(size int) bool

	// Cost reckons its time in seconds for size ranks and a buffer of n bytes: the whole
	// vector of a reduction or broadcast, all blocks of all ranks of a gather or scatter, what one
	// rank sends in all of an all-to-all.
	Cost func(m Machine, size, n int) float64
}

// TraitsOf is what there is to know of the algorithms of a table.
func TraitsOf[F any](entries []Entry[F]) []Traits {
	all := make([]Traits, len(entries))
	for i := range entries {
		all[i] = entries[i].Traits
	}
	return all
}

// The functions of the algorithms. Blocks of a buffer are given by their bounds: block i is
// buf[at[i]:at[i+1]], and at has one more number than the group has ranks.
type (
	// AllReduceFunc combines the bufs of all ranks, in place.
	AllReduceFunc func(p Port, buf []byte, r Reduction) error

	// ReduceFunc leaves the result in root's buf. The others' bufs are not changed.
	ReduceFunc func(p Port, buf []byte, root int, r Reduction) error

	// ReduceScatterFunc leaves block i of the result with rank i, in out. in is
	// not changed; out does not overlap it.
	ReduceScatterFunc func(p Port, out, in []byte, at []int, r Reduction) error

	// ScanFunc combines the bufs of ranks 0 to this one (Scan) or to the one before it
	// (Exscan; rank 0's buf is not changed), in place.
	ScanFunc func(p Port, buf []byte, r Reduction) error

	// BroadcastFunc copies root's buf to the others.
	BroadcastFunc func(p Port, buf []byte, root int) error

	// AllGatherFunc fills all blocks of buf; each rank's own is there at the start.
	AllGatherFunc func(p Port, buf []byte, at []int) error

	// GatherFunc collects each rank's in as its block of root's out. out and at are nil on
	// other ranks. out's own block and root's in do not overlap.
	GatherFunc func(p Port, out []byte, at []int, in []byte, root int) error

	// ScatterFunc is the reverse: each rank's out is its block of root's in.
	ScatterFunc func(p Port, out, in []byte, at []int, root int) error

	// AllToAllFunc sends block i of in to rank i, where it becomes the block of this
	// rank in out. in and out do not overlap.
	AllToAllFunc func(p Port, out []byte, outAt []int, in []byte, inAt []int) error

	// BarrierFunc returns when every rank has called it.
	BarrierFunc func(p Port) error
)
