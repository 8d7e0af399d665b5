package ddp

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unsafe"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// Drift finds out whether the parameters of all ranks still have the same bits. A bug, a bad memory cell or a library that
// computes otherwise on one machine would go on unnoticed, and each rank would train a model of its own.
type Drift struct {
	comm    *mpi.Comm
	params  []*nn.Param
	digests []uint64 // by parameter
	ranks   []uint64 // by rank, of all parameters
	one     []uint64
}

// NewDrift watches params, in the same order on all ranks.
func NewDrift(comm *mpi.Comm, params []*nn.Param) *Drift {
	return &Drift{comm: comm, params: params, one: make([]uint64, 1),
		digests: make([]uint64, len(params)), ranks: make([]uint64, comm.Size())}
}

// DriftError says that ranks have other parameters than the rest. It is the same on all ranks.
type DriftError struct {
	Step  int64
	Ranks []int  // that differ from rank Like
	Like  int    // the lowest of those that agree with most others
	Most  bool   // whether these are more than half: then the others are probably wrong
	World int    // how many ranks there are
	Param string // the first parameter that differs
}

// Error implements error.
func (e *DriftError) Error() string {
	ranks, verb := strings.Trim(fmt.Sprint(e.Ranks), "[]"), "ranks %s differ from"
	if len(e.Ranks) == 1 {
		verb = "rank %s differs from"
	}
	from := fmt.Sprintf("rank %d; no majority says which is right", e.Like)
	if e.Most {
		from = fmt.Sprintf("the majority, %d of %d ranks", e.World-len(e.Ranks), e.World)
	}
	return fmt.Sprintf("after step %d the parameters have drifted apart: "+verb+" %s; first in %s", e.Step, ranks, from, e.Param)
}

// Check compares the parameters after a step: 8 bytes of each rank travel, and only if these differ 8 for each parameter. It
// is collective. The error is a *DriftError, or what a collective has met.
func (d *Drift) Check(ctx context.Context, step int64) error {
	var all uint64
	for i, p := range d.params {
		d.digests[i] = digestOf(p.Value)
		all = round64(all, d.digests[i])
	}
	d.one[0] = all
	if err := mpi.AllGather(ctx, d.comm, d.ranks, d.one); err != nil {
		return fmt.Errorf("compare parameters over ranks: %w", err)
	}
	for _, digest := range d.ranks {
		if digest != d.ranks[0] {
			return d.explain(ctx, step)
		}
	}
	return nil
}

// explain says who differs and where.
func (d *Drift) explain(ctx context.Context, step int64) error {
	n := len(d.params)
	table := make([]uint64, len(d.ranks)*n)
	if err := mpi.AllGather(ctx, d.comm, table, d.digests); err != nil {
		return fmt.Errorf("find the parameter that has drifted: %w", err)
	}
	e := &DriftError{Step: step, World: len(d.ranks)}
	most := 0
	for rank, digest := range d.ranks {
		if n := count(d.ranks, digest); n > most {
			most, e.Like = n, rank
		}
	}
	e.Most = 2*most > len(d.ranks)
	for rank, digest := range d.ranks {
		if digest != d.ranks[e.Like] {
			e.Ranks = append(e.Ranks, rank)
		}
	}
	for i, p := range d.params {
		like := table[e.Like*n+i]
		if slices.ContainsFunc(e.Ranks, func(rank int) bool { return table[rank*n+i] != like }) {
			e.Param = p.Name
			break
		}
	}
	return e
}

func count(all []uint64, x uint64) int {
	n := 0
	for _, v := range all {
		if v == x {
			n++
		}
	}
	return n
}

// The constants of XXH64.
const (
	prime1 uint64 = 0x9E3779B185EBCA87
	prime2 uint64 = 0xC2B2AE3D27D4EB4F
	prime3 uint64 = 0x165667B19E3779F9
	prime4 uint64 = 0x85EBCA77C2B2AE63
	prime5 uint64 = 0x27D4EB2F165667C5
)

// digestOf is the XXH64 of x as it lies in memory, with seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md): fast, and enough against
// accidents.
func digestOf(x []float32) uint64 {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
	n := uint64(len(data))
	h := prime5
	if n >= 32 {
		seed := prime1 // a variable, as the sum below wraps around
		a, b, c, d := seed+prime2, prime2, uint64(0), -seed
		for ; len(data) >= 32; data = data[32:] {
			a = round64(a, binary.NativeEndian.Uint64(data[0:]))
			b = round64(b, binary.NativeEndian.Uint64(data[8:]))
			c = round64(c, binary.NativeEndian.Uint64(data[16:]))
			d = round64(d, binary.NativeEndian.Uint64(data[24:]))
		}
		h = bits.RotateLeft64(a, 1) + bits.RotateLeft64(b, 7) + bits.RotateLeft64(c, 12) + bits.RotateLeft64(d, 18)
		for _, lane := range [...]uint64{a, b, c, d} {
			h = (h^round64(0, lane))*prime1 + prime4
		}
	}
	h += n
	for ; len(data) >= 8; data = data[8:] {
		h = bits.RotateLeft64(h^round64(0, binary.NativeEndian.Uint64(data)), 27)*prime1 + prime4
	}
	if len(data) == 4 {
		h = bits.RotateLeft64(h^uint64(binary.NativeEndian.Uint32(data))*prime1, 23)*prime2 + prime3
	}
	h = (h ^ h>>33) * prime2
	h = (h ^ h>>29) * prime3
	return h ^ h>>32
}

func round64(lane, word uint64) uint64 {
	return bits.RotateLeft64(lane+word*prime2, 31) * prime1
}
