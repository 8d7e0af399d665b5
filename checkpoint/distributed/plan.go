package distributed

import (
	"errors"
	"fmt"
	"slices"

	"ddpbatch/checkpoint"
)

// plan says which rank writes which bytes of which array. It is a pure function of the ranks' lists, and the same for every save.
type plan []planned

// planned is one array and its cuts in order of Start; none where it has no bytes.
type planned struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Cuts  []cut  `json:"cuts"`
}

// cut is the part of an array that one rank writes into its shard.
type cut struct {
	Rank   int   `json:"rank"`
	Start  int64 `json:"start"` // byte in the array
	Length int64 `json:"length"`
}

// makePlan checks that the ranks' lists fit each other and shares out the work. Arrays stay in the order in which they are
// first listed, rank by rank.
func makePlan(lists [][]listing) (plan, error) {
	all, err := merge(lists)
	if err != nil {
		return nil, err
	}
	p := make(plan, len(all))
	for i, a := range all {
		p[i] = planned{Name: a.Name, DType: a.DType, Shape: a.Shape}
	}
	fill(p, all, len(lists))
	return p, nil
}

// maxTotal bounds what all ranks list together, so that sums of sizes cannot overflow.
const maxTotal = 1 << 60

// held is an array and the ranks that have it.
type held struct {
	listing
	holders []int // ascending
}

// merge joins the lists; hostile and contradicting ones are an error.
func merge(lists [][]listing) ([]held, error) {
	var all []held
	var total int64
	index := map[string]int{}
	for rank, list := range lists {
		for _, l := range list {
			if err := l.check(); err != nil {
				return nil, fmt.Errorf("list of rank %d: %w", rank, err)
			}
			if l.Bytes > maxTotal-total {
				return nil, fmt.Errorf("the arrays of all ranks take more than %d bytes", int64(maxTotal))
			}
			total += l.Bytes
			i, known := index[l.Name]
			if !known {
				index[l.Name] = len(all)
				all = append(all, held{listing: l, holders: []int{rank}})
				continue
			}
			if err := all[i].join(l, rank); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// join adds a rank to an array's holders.
func (h *held) join(l listing, rank int) error {
	first := h.holders[0]
	switch {
	case h.holders[len(h.holders)-1] == rank:
		return fmt.Errorf("rank %d lists array %q twice", rank, l.Name)
	case !h.Replicated || !l.Replicated:
		return fmt.Errorf("ranks %d and %d both list array %q, which is not replicated on both: name what is a rank's own after the rank", first, rank, l.Name)
	case h.DType != l.DType || !slices.Equal(h.Shape, l.Shape):
		return fmt.Errorf("array %q is %s %v on rank %d and %s %v on rank %d", l.Name, h.DType, h.Shape, first, l.DType, l.Shape, rank)
	}
	h.holders = append(h.holders, rank)
	return nil
}

// loads is how much each rank writes.
func (p plan) loads(ranks int) []int64 {
	loads := make([]int64, ranks)
	for _, a := range p {
		for _, c := range a.Cuts {
			loads[c.Rank] += c.Length
		}
	}
	return loads
}

// bytes is what all ranks write together.
func (p plan) bytes() (total int64) {
	for _, a := range p {
		for _, c := range a.Cuts {
			total += c.Length
		}
	}
	return total
}

// tensors is the plan as a checkpoint records it: shard i is that of the i-th writer, its pieces in the order of the plan.
func (p plan) tensors(writers []int) []checkpoint.TensorPlan {
	offsets := make([]int64, len(writers))
	all := make([]checkpoint.TensorPlan, len(p))
	for i, a := range p {
		all[i] = checkpoint.TensorPlan{Name: a.Name, DType: a.DType, Shape: a.Shape}
		for _, c := range a.Cuts {
			shard, _ := slices.BinarySearch(writers, c.Rank) // who has a cut is a writer
			all[i].Extents = append(all[i].Extents, checkpoint.Extent{Shard: shard, Offset: offsets[shard], Start: c.Start, Length: c.Length})
			offsets[shard] += c.Length
		}
	}
	return all
}

var errPlan = errors.New("rank 0's plan does not fit this rank's arrays")

// pieces are those that a rank writes, straight from its live arrays, in the order of the plan.
func (p plan) pieces(rank int, arrays []Array) ([]checkpoint.Piece, error) {
	live := map[string][]byte{}
	for _, a := range arrays {
		live[a.Name] = a.Data
	}
	var own []checkpoint.Piece
	for _, a := range p {
		for _, c := range a.Cuts {
			if c.Rank != rank {
				continue
			}
			data := live[a.Name]
			if c.Start < 0 || c.Length < 0 || c.Start > int64(len(data)) || c.Length > int64(len(data))-c.Start {
				return nil, fmt.Errorf("%w: %q", errPlan, a.Name)
			}
			own = append(own, checkpoint.Piece{Tensor: a.Name, DType: a.DType, Shape: a.Shape, Start: c.Start, Data: data[c.Start : c.Start+c.Length]})
		}
	}
	return own, nil
}
