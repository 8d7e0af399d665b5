package ddp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"ddpbatch/internal/crc32c"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// Drift checks whether the parameters of all ranks have the same bits. Otherwise a bug, a bad memory cell or a library that
// computes differently on one machine would go unnoticed, and each rank would train a model of its own.
type Drift struct {
	comm    *mpi.Comm
	params  []*nn.Param
	digests []uint32 // by parameter
	ranks   []uint32 // digests of all parameters, by rank
	own     []uint32 // this rank's digest of all parameters
}

// NewDrift returns a Drift of params, which must be in the same order on all ranks.
func NewDrift(comm *mpi.Comm, params []*nn.Param) *Drift {
	return &Drift{comm: comm, params: params, own: make([]uint32, 1),
		digests: make([]uint32, len(params)), ranks: make([]uint32, comm.Size())}
}

// DriftError reports that some ranks have other parameters than the rest. It is the same on all ranks.
type DriftError struct {
	Step  int64
	Ranks []int  // the ranks that differ from rank Like
	Like  int    // the lowest of the largest set of ranks that agree
	Most  bool   // whether that set is more than half of the ranks: then the others are probably wrong
	World int    // number of ranks
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

// Check compares the parameters after a step. Each rank sends a CRC-32C of all parameters, and if these differ, that of each parameter. It
// is collective. The error is a *DriftError, or that of a collective.
func (d *Drift) Check(ctx context.Context, step int64) error {
	for i, p := range d.params {
		d.digests[i] = digestOf(p.Value)
	}
	d.own[0] = digestOf(d.digests)
	if err := mpi.AllGather(ctx, d.comm, d.ranks, d.own); err != nil {
		return fmt.Errorf("compare parameters over ranks: %w", err)
	}
	for _, digest := range d.ranks {
		if digest != d.ranks[0] {
			return d.explain(ctx, step)
		}
	}
	return nil
}

// explain finds which ranks differ and in which parameter.
func (d *Drift) explain(ctx context.Context, step int64) error {
	n := len(d.params)
	table := make([]uint32, len(d.ranks)*n)
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

func count(all []uint32, x uint32) int {
	n := 0
	for _, v := range all {
		if v == x {
			n++
		}
	}
	return n
}

// digestOf returns the checksum of the memory of x. It is fast, and good enough to detect accidents.
func digestOf[T float32 | uint32](x []T) uint32 {
	return crc32c.Checksum(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)))
}
