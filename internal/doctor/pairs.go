package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ddpbatch/mpi"
)

// Pair is what was measured between nodes number A and B.
type Pair struct {
	A, B      int
	Latency   time.Duration // half of the median round trip of a few bytes
	Bandwidth float64       // bytes per second in one direction at a time
}

// rounds arranges n nodes in rounds of pairs, so that each two nodes are paired once, and no node is in two pairs of a round. There are n-1
// rounds, or n if n is odd. This is the circle method: the last node keeps its place, and the others rotate.
func rounds(n int) (all [][][2]int) {
	places := n + n%2 // with an empty place if n is odd
	for r := range places - 1 {
		var round [][2]int
		for i := range places / 2 {
			a, b := (r+i)%(places-1), (r+places-1-i)%(places-1)
			if i == 0 {
				b = places - 1
			}
			if a < n && b < n {
				round = append(round, [2]int{min(a, b), max(a, b)})
			}
		}
		all = append(all, round)
	}
	return all
}

const (
	roundBudget = 200 * time.Millisecond // for one round
	allBudget   = time.Minute            // for all rounds, unless leastBudget needs more
	leastBudget = 20 * time.Millisecond
)

// budgetOf returns how long each round may take, if there are so many.
func budgetOf(rounds int) time.Duration {
	return max(min(roundBudget, allBudget/time.Duration(max(rounds, 1))), leastBudget)
}

// nodeLimit bounds the checks of one node; a driver that hangs takes gpuLimit.
const nodeLimit = 30 * time.Second

// Limit returns how long a task may wait for the others, if there are so many ranks. The first task of each node checks the node and
// measures all rounds, and the other tasks wait for it.
func Limit(ranks int) time.Duration {
	return nodeLimit + 2*time.Duration(ranks)*budgetOf(ranks) // a slow network takes longer than its budget
}

// Tags of messages.
const (
	tagClock = iota + 1
	tagPair
)

const bulk = 1 << 20 // bytes of a message by which bandwidth is measured

// measurePairs measures all pairs of ranks of c, a round at a time. It returns those of which this rank is the first.
func measurePairs(ctx context.Context, c *mpi.Comm) (mine []Pair, err error) {
	all := rounds(c.Size())
	budget := budgetOf(len(all))
	small, large := make([]uint8, 8), make([]uint8, bulk)
	for _, round := range all {
		if err := c.Barrier(ctx); err != nil {
			return nil, fmt.Errorf("measure the network: %w", err)
		}
		at := slices.IndexFunc(round, func(p [2]int) bool { return p[0] == c.Rank() || p[1] == c.Rank() })
		if at < 0 {
			continue // not in a pair of this round
		}
		pair := Pair{A: round[at][0], B: round[at][1]}
		if pair.B == c.Rank() {
			if err := errorsOf(echo(ctx, c, small, pair.A), func() error { return echo(ctx, c, large, pair.A) }); err != nil {
				return nil, fmt.Errorf("measure the network between ranks %d and %d: %w", pair.A, pair.B, err)
			}
			continue
		}
		quick, err := pingPong(ctx, c, small, pair.B, budget/4)
		if err != nil {
			return nil, fmt.Errorf("measure the network between ranks %d and %d: %w", pair.A, pair.B, err)
		}
		long, err := pingPong(ctx, c, large, pair.B, budget*3/4)
		if err != nil {
			return nil, fmt.Errorf("measure the network between ranks %d and %d: %w", pair.A, pair.B, err)
		}
		pair.Latency, pair.Bandwidth = quick/2, 2*bulk/long.Seconds()
		mine = append(mine, pair)
	}
	return mine, nil
}

// errorsOf returns err or, if it is nil, the error of next.
func errorsOf(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

const (
	leastTrips = 3 // even if they take longer than the budget
	warmTrips  = 2 // not counted
	mostTrips  = 2000
)

// pingPong sends buf to a rank and back until the budget is used up, and returns the median round trip. The first byte says whether another
// message follows.
func pingPong(ctx context.Context, c *mpi.Comm, buf []uint8, to int, budget time.Duration) (time.Duration, error) {
	var trips []time.Duration
	begun := time.Now()
	for n, last := 0, false; !last; n++ {
		last = n >= warmTrips+leastTrips-1 && (time.Since(begun) >= budget || n >= mostTrips)
		buf[0] = 1
		if last {
			buf[0] = 0
		}
		sent := time.Now()
		if err := mpi.Send(ctx, c, buf, to, tagPair); err != nil {
			return 0, err
		}
		if _, err := mpi.Recv(ctx, c, buf, to, tagPair); err != nil {
			return 0, err
		}
		if n >= warmTrips {
			trips = append(trips, time.Since(sent))
		}
	}
	return max(medianOf(trips), 1), nil
}

// echo is the other side of pingPong.
func echo(ctx context.Context, c *mpi.Comm, buf []uint8, to int) error {
	for {
		if _, err := mpi.Recv(ctx, c, buf, to, tagPair); err != nil {
			return err
		}
		goesOn := buf[0] != 0
		if err := mpi.Send(ctx, c, buf, to, tagPair); err != nil || !goesOn {
			return err
		}
	}
}

// medianOf returns the median, or the upper one of two, or 0 for an empty list. It sorts the list.
func medianOf[T time.Duration | float64](list []T) T {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

const clockTrips = 10

// measureClocks returns, on rank 0, by how much each rank's clock is ahead of rank 0's. It uses the quickest of several round trips; the
// error is at most half of it.
func measureClocks(ctx context.Context, c *mpi.Comm) (ahead []time.Duration, err error) {
	buf := make([]int64, 1)
	if c.Rank() > 0 {
		for range clockTrips {
			if _, err := mpi.Recv(ctx, c, buf, 0, tagClock); err != nil {
				return nil, fmt.Errorf("compare the clocks: %w", err)
			}
			buf[0] = time.Now().UnixNano()
			if err := mpi.Send(ctx, c, buf, 0, tagClock); err != nil {
				return nil, fmt.Errorf("compare the clocks: %w", err)
			}
		}
		return nil, nil
	}
	ahead = make([]time.Duration, c.Size())
	for rank := 1; rank < c.Size(); rank++ {
		quickest := time.Duration(0)
		for n := range clockTrips {
			sent := time.Now()
			if err := mpi.Send(ctx, c, buf, rank, tagClock); err != nil {
				return nil, fmt.Errorf("compare the clocks: %w", err)
			}
			if _, err := mpi.Recv(ctx, c, buf, rank, tagClock); err != nil {
				return nil, fmt.Errorf("compare the clocks: %w", err)
			}
			trip := time.Since(sent)
			if n == 0 || trip < quickest {
				quickest, ahead[rank] = trip, time.Unix(0, buf[0]).Sub(sent.Add(trip/2).Round(0))
			}
		}
	}
	return ahead, nil
}
