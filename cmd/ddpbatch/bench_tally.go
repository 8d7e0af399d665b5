package main

import (
	"context"

	"ddpbatch/mpi"
)

// tallyTag is of messages that nothing else sends.
const tallyTag = 1

// tally brings the number of wrong elements to rank 0, where it returns that of all ranks; elsewhere it returns this
// rank's. It trusts no more of what is measured than it has to: no collective, and a count that arrives
// without its complement, damaged, is itself a wrong element.
func (b *benchRank) tally(ctx context.Context, own int64) (int64, error) {
	if b.rank > 0 {
		return own, mpi.Send(ctx, b.comm, pairOf(own), 0, tallyTag)
	}
	all := own
	for rank := 1; rank < b.ranks; rank++ {
		pair := make([]int64, 2)
		if _, err := mpi.Recv(ctx, b.comm, pair, rank, tallyTag); err != nil {
			return all, err
		}
		all += countIn(pair)
	}
	return all, nil
}

func pairOf(count int64) []int64 { return []int64{count, ^count} }

// countIn is what pairOf made a pair of, or 1 of any other pair.
func countIn(pair []int64) int64 {
	if pair[0] < 0 || pair[1] != ^pair[0] {
		return 1
	}
	return pair[0]
}
