package distributed

import "context"

// Group is the ranks that save together, rank 0 to Size()-1. Its collectives are called in the same order by all ranks; a Saver
// calls them from one goroutine at a time, which need not be the caller's, so nobody else may use the Group while the Saver lives.
// Where a rank has died, or ctx is done, they return an error instead of waiting for ever.
type Group interface {
	Rank() int
	Size() int
	// Gather returns every rank's payload, by rank, on rank 0; nil on the others. It is a copy.
	Gather(ctx context.Context, payload []byte) ([][]byte, error)
	// Broadcast returns rank 0's payload on every rank; the others' arguments do not count.
	Broadcast(ctx context.Context, payload []byte) ([]byte, error)
}
