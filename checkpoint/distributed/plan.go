package distributed

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/internal/manifest"
)

// plan says which rank writes which bytes of which array. It depends only on the ranks' lists, and is the same for every save.
type plan []planned

// planned is one array and its cuts in the order of Start. An array without bytes has no cuts.
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

// makePlan checks the ranks' lists against each other and divides the work. Arrays stay in the order in which they are
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

// heldArray is an array and the ranks that have it.
type heldArray struct {
	listing
	holders []int // ascending
}

// merge joins the lists. It returns an error for lists that contradict each other or are hostile.
func merge(lists [][]listing) ([]heldArray, error) {
	var all []heldArray
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
				all = append(all, heldArray{listing: l, holders: []int{rank}})
				continue
			}
			if err := all[i].join(l, rank); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// join adds a rank to the holders of an array.
func (h *heldArray) join(l listing, rank int) error {
	first := h.holders[0]
	switch {
	case h.holders[len(h.holders)-1] == rank:
		return fmt.Errorf("rank %d lists array %q twice", rank, l.Name)
	case !h.Replicated || !l.Replicated:
		return fmt.Errorf("ranks %d and %d both list array %q, which is not replicated on both: put the rank into the name",
			first, rank, l.Name)
	case h.DType != l.DType || !slices.Equal(h.Shape, l.Shape):
		return fmt.Errorf("array %q is %s %v on rank %d and %s %v on rank %d", l.Name, h.DType, h.Shape, first, l.DType, l.Shape, rank)
	}
	h.holders = append(h.holders, rank)
	return nil
}

// loads returns how many bytes each rank writes.
func (p plan) loads(ranks int) []int64 {
	loads := make([]int64, ranks)
	for _, a := range p {
		for _, c := range a.Cuts {
			loads[c.Rank] += c.Length
		}
	}
	return loads
}

// bytes returns how many bytes all ranks write together.
func (p plan) bytes() (total int64) {
	for _, a := range p {
		for _, c := range a.Cuts {
			total += c.Length
		}
	}
	return total
}

// tensors returns the plan as a checkpoint records it: shard i is that of the i-th writer, with its pieces in the order of the plan.
func (p plan) tensors(writers []int) []checkpoint.TensorPlan {
	offsets := make([]int64, len(writers))
	all := make([]checkpoint.TensorPlan, len(p))
	for i, a := range p {
		all[i] = checkpoint.TensorPlan{Name: a.Name, DType: a.DType, Shape: a.Shape}
		for _, c := range a.Cuts {
			shard, _ := slices.BinarySearch(writers, c.Rank) // every rank with a cut is a writer
			all[i].Extents = append(all[i].Extents,
				checkpoint.Extent{Shard: shard, Offset: offsets[shard], Start: c.Start, Length: c.Length})
			offsets[shard] += c.Length
		}
	}
	return all
}

var errPlan = errors.New("rank 0's plan does not fit this rank's arrays")

// pieces returns the pieces that a rank writes, in its live arrays, in the order of the plan.
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
			own = append(own, checkpoint.Piece{Tensor: a.Name, DType: a.DType, Shape: a.Shape, Start: c.Start,
				Data: data[c.Start : c.Start+c.Length]})
		}
	}
	return own, nil
}

// listing is an Array as it is reported to other ranks.
type listing struct {
	Name       string `json:"name"`
	DType      string `json:"dtype"`
	Shape      []int  `json:"shape"`
	Bytes      int64  `json:"bytes"`
	Replicated bool   `json:"replicated,omitempty"`
}

// list describes the arrays of this rank, and refuses those that could not be recorded.
func list(arrays []Array) ([]listing, error) {
	all := make([]listing, len(arrays))
	seen := map[string]bool{}
	for i, a := range arrays {
		l := listing{Name: a.Name, DType: a.DType, Shape: a.Shape, Bytes: int64(len(a.Data)), Replicated: a.Replicated}
		if err := l.check(); err != nil {
			return nil, err
		}
		if seen[a.Name] {
			return nil, fmt.Errorf("array %q is listed twice", a.Name)
		}
		seen[a.Name] = true
		all[i] = l
	}
	return all, nil
}

func (l listing) check() error {
	if err := manifest.CheckTensorName(l.Name); err != nil {
		return err
	}
	size, err := manifest.ByteSize(l.DType, l.Shape)
	if err != nil {
		return fmt.Errorf("array %q: %w", l.Name, err)
	}
	if size != l.Bytes {
		return fmt.Errorf("array %q: shape %v of %s needs %d bytes, it has %d", l.Name, l.Shape, l.DType, size, l.Bytes)
	}
	return nil
}

// cutMultiple divides the offsets of all cuts in an array: it is a page of memory, and a whole number of elements of every type.
const cutMultiple = 4 << 10

// fill divides every array among its holders so that the ranks write numbers of bytes that are as equal as possible (water-filling). It
// assigns what only one rank has first, then the arrays of larger sets of holders, the smaller sets first, because larger sets
// have more ranks to even out the load. Under plain data parallelism every rank writes total/world, give or take a page.
func fill(p plan, all []heldArray, world int) {
	load := make([]int64, world)
	groups := map[string][]int{} // holders -> arrays
	var order []string
	for i, a := range all {
		key := fmt.Sprint(a.holders)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], i)
	}
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Compare(len(all[groups[a][0]].holders), len(all[groups[b][0]].holders))
	})
	for _, key := range order {
		fillGroup(p, all, groups[key], load)
	}
}

// fillGroup divides the arrays of one set of holders. It lays them end to end and cuts them where a holder has its share. A cut moves to
// the nearest multiple of cutMultiple in its array; the errors do not add up.
func fillGroup(p plan, all []heldArray, arrays []int, load []int64) {
	holders := all[arrays[0]].holders
	var total int64
	for _, i := range arrays {
		total += all[i].Bytes
	}
	share := shares(total, holders, load)
	h, end := 0, share[0] // the current holder, and where its share ends, from the start of the group
	var start int64       // of the array
	for _, i := range arrays {
		for at := int64(0); at < all[i].Bytes; {
			stop := nearest(end-start, all[i].Bytes)
			if h == len(holders)-1 {
				stop = all[i].Bytes
			}
			if stop > at {
				p[i].Cuts = append(p[i].Cuts, cut{Rank: holders[h], Start: at, Length: stop - at})
				load[holders[h]] += stop - at
				at = stop
			}
			if at < all[i].Bytes {
				h++
				end += share[h]
			}
		}
		start += all[i].Bytes
	}
}

// shares returns how much of total each holder gets so that the largest load is as small as possible.
func shares(total int64, holders []int, load []int64) []int64 {
	byLoad := slices.Clone(holders)
	slices.SortStableFunc(byLoad, func(a, b int) int { return cmp.Compare(load[a], load[b]) })
	// The n holders with the least load are filled up to one level, which is below the load of the next one.
	var below int64
	n := 0
	for n < len(byLoad) && (n == 0 || load[byLoad[n]] <= (total+below)/int64(n)) {
		below += load[byLoad[n]]
		n++
	}
	level, rest := (total+below)/int64(n), (total+below)%int64(n)
	share := make([]int64, len(holders))
	for i, rank := range holders {
		if at := slices.Index(byLoad, rank); at < n {
			share[i] = level - load[rank]
			if int64(at) < rest {
				share[i]++
			}
		}
	}
	return share
}

// nearest returns the cut nearest to at: a multiple of cutMultiple, or the end of an array of that size.
func nearest(at, size int64) int64 {
	if at >= size {
		return size
	}
	down := max(at, 0) / cutMultiple * cutMultiple
	up := min(down+cutMultiple, size)
	if at-down <= up-at {
		return down
	}
	return up
}

// roomForValues is kept free in a manifest for what differs from save to save: values, metrics, names, sizes.
const roomForValues = 1 << 20

// fits returns an error if no manifest can hold the plan, so that a state of too many parts fails before training, not at the first save.
func (p plan) fits(location checkpoint.Location, writers []int, loads []int64) error {
	m := manifest.Manifest{Run: location.Run, Attempt: location.Attempt, World: len(loads), Created: time.Unix(0, 0).UTC()}
	for _, t := range p.tensors(writers) {
		tensor := manifest.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape}
		for _, e := range t.Extents {
			tensor.Pieces = append(tensor.Pieces, manifest.Piece(e))
		}
		m.Tensors = append(m.Tensors, tensor)
	}
	for i, rank := range writers {
		name := manifest.Tag{Attempt: location.Attempt}.ShardName(i, len(writers))
		m.Shards = append(m.Shards, manifest.Shard{File: name, Size: manifest.MaxShardBytes, Raw: loads[rank]})
	}
	data, err := m.Encode()
	if err == nil && len(data) > manifest.MaxBytes-roomForValues {
		err = fmt.Errorf("it would take %d bytes of at most %d", len(data), manifest.MaxBytes)
	}
	if err != nil {
		return fmt.Errorf("no manifest can hold the %d arrays of %d ranks: %w; merge small arrays", len(p), len(loads), err)
	}
	return nil
}

// writers returns the ranks that write a shard, ascending: shard i is the i-th's. A rank without bytes writes none, with two exceptions: a
// checkpoint has at least one shard, and with a node-local tier rank 0 has one, because only its record says what goes into the manifest.
func (p plan) writers(tier bool) []int {
	var ranks []int
	if tier {
		ranks = append(ranks, 0)
	}
	for _, a := range p {
		for _, c := range a.Cuts {
			ranks = append(ranks, c.Rank)
		}
	}
	if len(ranks) == 0 {
		return []int{0}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// shardNumber is the number of this rank's shard in every save.
type shardNumber struct {
	i, of int // i < 0: the rank has no shard
}

func (s shardNumber) none() bool { return s.i < 0 }

// shardOf returns the shard number of a rank.
func shardOf(rank int, writers []int) shardNumber {
	i, found := slices.BinarySearch(writers, rank)
	if !found {
		i = -1
	}
	return shardNumber{i: i, of: len(writers)}
}
