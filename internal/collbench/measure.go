package collbench

import (
	"context"
	"runtime"
	"slices"
	"time"

	"ddpbatch/mpi"
)

var clockStart = time.Now()

// now reads only the monotonic clock, as time.Since does; time.Now also reads the wall clock.
func now() time.Duration { return time.Since(clockStart) }

func microsecondsOf(d time.Duration) float64 { return float64(d) / 1e3 }

// clockCost returns the median difference between two consecutive readings of the clock, in microseconds.
func clockCost() float64 {
	apart := make([]float64, 1001)
	for i := range apart {
		start := now()
		apart[i] = microsecondsOf(now() - start)
	}
	return medianOf(apart)
}

// medianOf returns the median of x. It sorts x.
func medianOf(x []float64) float64 {
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// callTimes are statistics over the times of calls, in microseconds.
type callTimes struct{ median, least, mean, most float64 }

// timesOf returns the statistics of x. It sorts x.
func timesOf(x []float64) callTimes {
	slices.Sort(x)
	sum := 0.0
	for _, us := range x {
		sum += us
	}
	return callTimes{median: medianOf(x), least: x[0], mean: sum / float64(len(x)), most: x[len(x)-1]}
}

// measure times calls, with a barrier before each. The time of one call is the mean over ranks, minus the time that reading the clock
// takes. scripts/bench/peers times the other libraries in the same way.
func (b *bench) measure(ctx context.Context, call timedCall) (callTimes, error) {
	runtime.GC() // frees the buffers of the previous size
	calls, err := b.warmUp(ctx, call)
	if err != nil {
		return callTimes{}, err
	}
	took := make([]float64, calls)
	for i := range took {
		if err := b.comm.Barrier(ctx); err != nil {
			return callTimes{}, err
		}
		start := now()
		if err := call.run(ctx); err != nil {
			return callTimes{}, err
		}
		took[i] = max(0, microsecondsOf(now()-start)-b.clock)
	}
	parts := float64(b.ranks)
	if b.o.collective.oneWay {
		parts = 2 // half of rank 0's round trip
		if b.rank != 0 {
			clear(took)
		}
	}
	if err := mpi.AllReduce(ctx, b.comm, took, mpi.Sum); err != nil {
		return callTimes{}, err
	}
	for i := range took {
		took[i] /= parts
	}
	return timesOf(took), nil
}

// warmUp doubles the number of calls until they take a tenth of the budget, and returns how many calls fit into the budget,
// within bounds. Rank 0's clock decides for all ranks. If --warmup and --iters are given, they are used instead.
func (b *bench) warmUp(ctx context.Context, call timedCall) (calls int, err error) {
	budget := microsecondsOf(b.o.Budget)
	n := max(1, b.o.Warmup)
	for {
		took, err := b.batch(ctx, call, n)
		if err != nil {
			return 0, err
		}
		warm := took >= budget/10 || n >= maxCalls || b.o.Warmup > 0
		switch {
		case warm && b.o.Iters > 0:
			return b.o.Iters, nil
		case warm:
			return int(min(max(budget/(took/float64(n)), minCalls), maxCalls)), nil
		}
		n *= 2
	}
}

// batch makes n calls, each after a barrier, and returns rank 0's time for all of them, in microseconds.
func (b *bench) batch(ctx context.Context, call timedCall, n int) (float64, error) {
	start := now()
	for range n {
		if err := b.comm.Barrier(ctx); err != nil {
			return 0, err
		}
		if err := call.run(ctx); err != nil {
			return 0, err
		}
	}
	took := []float64{microsecondsOf(now() - start)}
	err := mpi.Broadcast(ctx, b.comm, took, 0)
	return took[0], err
}

// tallyTag is the tag of tally's messages, which other messages do not use.
const tallyTag = 1

// tally sends the number of wrong elements to rank 0, where it returns the sum over all ranks; elsewhere it returns this
// rank's number. It relies as little as possible on what is measured: it does not use a collective, and a count that arrives
// damaged, without its complement, counts as a wrong element.
func (b *bench) tally(ctx context.Context, own int64) (int64, error) {
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

// countIn returns the count from which pairOf made the pair, or 1 for any other pair.
func countIn(pair []int64) int64 {
	if pair[0] < 0 || pair[1] != ^pair[0] {
		return 1
	}
	return pair[0]
}
