package distributed

import "slices"

// writers are the ranks that write a shard, ascending: shard i is the i-th's. Who has no bytes writes none, but two rules go before that: a checkpoint
// has a shard at least, and with a node-local tier rank 0 has one, as only its record says what belongs into the manifest.
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

// shardNumber is which of the shards of every save is this rank's.
type shardNumber struct {
	i, of int // i < 0: none
}

func (s shardNumber) none() bool { return s.i < 0 }

// shardOf is that of a rank.
func shardOf(rank int, writers []int) shardNumber {
	i, found := slices.BinarySearch(writers, rank)
	if !found {
		i = -1
	}
	return shardNumber{i: i, of: len(writers)}
}
