package submission

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// A Piece is one of the arrays as which a sweep is submitted that has more elements than the cluster permits in one array.
type Piece struct {
	Words    []string // sbatch's options for it
	elements []int
}

// OffsetVariable holds the first element of a piece, for the piece's batch script.
const OffsetVariable = "DDPBATCH_ARRAY_OFFSET"

// PieceSize returns the number of elements in each piece if n elements are split into as few arrays as possible, of at most most elements.
func PieceSize(n, most int) int {
	pieces := (n + most - 1) / most
	return (n + pieces - 1) / pieces
}

// Pieces splits the elements of an array into pieces of size: element i is in piece i/size, with Slurm's index i%size. The number of
// elements that may run at once is divided among the pieces, because each array has its own limit.
func Pieces(array slurm.Array, size int) ([]Piece, error) {
	var pieces []Piece
	for from := 0; from < len(array.Indices); {
		offset := array.Indices[from] / size * size
		to := from
		for to < len(array.Indices) && array.Indices[to] < offset+size {
			to++
		}
		pieces = append(pieces, Piece{elements: array.Indices[from:to]})
		from = to
	}
	if array.Limit > 0 && array.Limit < len(pieces) {
		return nil, usage.Errorf("sweep.parallel = %d is less than the %d arrays as which the sweep is submitted, "+
			"each of which has its own limit: raise it, or submit the sweep in parts", array.Limit, len(pieces))
	}
	for i := range pieces {
		p := &pieces[i]
		offset := p.elements[0] / size * size
		own := slurm.Array{Limit: array.Limit / len(pieces)}
		if i < array.Limit%len(pieces) {
			own.Limit++
		}
		for _, element := range p.elements {
			own.Indices = append(own.Indices, element-offset)
		}
		p.Words = []string{"--array=" + own.String(), "--export=ALL," + OffsetVariable + "=" + strconv.Itoa(offset)}
	}
	return pieces, nil
}

// submitPieces submits a sweep as several arrays. The run keeps the ID of the first as its own.
func (e Env) submitPieces(ctx context.Context, run *rundir.Dir, claim *rundir.Claim, o Order) (ids []string, err error) {
	note := o.Event
	for i, piece := range o.Pieces {
		if o.Event.Element == nil {
			note.Spans = rundir.SpansOf(piece.elements)
		}
		job, err := e.Submit(ctx, run, claim, slices.Concat(piece.Words, o.Words, o.First), note)
		switch {
		case err != nil && i == 0:
			return nil, err
		case err != nil:
			err = fmt.Errorf("array %d of %d of the sweep: %w", i+1, len(o.Pieces), err)
			return ids, e.takeBack(ctx, run, ids, "arrays", err)
		}
		if i == 0 {
			e = e.with(job, o)
		}
		ids, note.Detail = append(ids, job.ID), rundir.EventLink
	}
	return ids, nil
}
