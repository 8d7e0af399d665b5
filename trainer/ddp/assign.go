package ddp

import "slices"

// tensor is what the assignment to buckets knows of a gradient.
type tensor struct {
	kind  string // its element type: a bucket has one
	bytes int
}

// assign deals tensors to buckets, in order, and returns the indices in each and the limit that each was filled up to.
//
// There is one open bucket for each kind, which takes the tensors of this kind until it has at least as many bytes as its limit; the
// kind's next bucket has the next of limits, or the last one again. Buckets are in the order of their first tensors. (PyTorch's
// compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp, for dense gradients.)
func assign(tensors []tensor, limits []int) (buckets [][]int, limitOf []int) {
	type bucket struct {
		indices []int
		limit   int
	}
	type open struct {
		indices []int
		bytes   int
		limit   int // place in limits
	}
	var all []bucket
	opened := map[string]*open{}
	var kinds []string // in order of appearance: maps have none
	for i, t := range tensors {
		o := opened[t.kind]
		if o == nil {
			o = new(open)
			opened[t.kind] = o
			kinds = append(kinds, t.kind)
		}
		o.indices = append(o.indices, i)
		o.bytes += t.bytes
		if o.bytes >= limits[o.limit] {
			all = append(all, bucket{o.indices, limits[o.limit]})
			*o = open{limit: min(o.limit+1, len(limits)-1)}
		}
	}
	for _, kind := range kinds {
		if o := opened[kind]; len(o.indices) > 0 {
			all = append(all, bucket{o.indices, limits[o.limit]})
		}
	}
	slices.SortFunc(all, func(a, b bucket) int { return a.indices[0] - b.indices[0] })
	for _, b := range all {
		buckets, limitOf = append(buckets, b.indices), append(limitOf, b.limit)
	}
	return buckets, limitOf
}
