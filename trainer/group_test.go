package trainer

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"ddpbatch/mpi"
)

// TestGroupCarriesBytes: messages of any length, none included, arrive as they are, by rank.
func TestGroupCarriesBytes(t *testing.T) {
	message := func(rank, length int) []byte { return bytes.Repeat([]byte{byte(rank + 1)}, length*rank) }
	for _, err := range onRanks(t, "local", 4, func(ctx context.Context, comm *mpi.Comm) error {
		g, err := newGroup(ctx, comm)
		if err != nil {
			return err
		}
		for _, length := range []int{0, 1, 100_000} {
			all, err := g.Gather(ctx, message(g.Rank(), length))
			if err != nil {
				return err
			}
			if g.Rank() != 0 && all != nil || g.Rank() == 0 && len(all) != 4 {
				return fmt.Errorf("rank %d has %d messages", g.Rank(), len(all))
			}
			for rank, got := range all {
				if !bytes.Equal(got, message(rank, length)) {
					return fmt.Errorf("%d bytes of rank %d are not what it sent", len(got), rank)
				}
			}
			told, err := g.Broadcast(ctx, message(3-g.Rank(), length)) // rank 0's is not empty
			if err != nil {
				return err
			}
			if !bytes.Equal(told, message(3, length)) {
				return fmt.Errorf("rank %d was told %d bytes", g.Rank(), len(told))
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
}
