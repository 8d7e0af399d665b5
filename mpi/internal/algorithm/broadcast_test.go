package algorithm

import (
	"fmt"
	"testing"
)

// torch: each rank is the root once. The values i W + i%W from root i%W are those of torch's stress test.
func TestBroadcastAsTorch(t *testing.T) {
	forPeers(t, Broadcasts(), func(p Port, run BroadcastFunc) error {
		for i := range 3 * p.Size() {
			root := i % p.Size()
			buf := encode([]int{p.Rank()})
			want := i*p.Size() + root
			if p.Rank() == root {
				buf = encode([]int{want})
			}
			if err := run(p, buf, root); err != nil {
				return err
			}
			if err := wantValues(buf, []int{want}); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		return nil
	})
}

// The double tree sends each byte to each rank once, and no rank sends more bytes than the buffer has.
func TestDoubleTreeSharesTheWork(t *testing.T) {
	m := moverNamed(t, "broadcast/double_tree")
	for p := 2; p <= 24; p++ {
		const n = 1 << 13
		j := evenPayload(p, n, p/3)
		traffic := move(t, localGroup{}, m, j)
		if _, bytes := traffic.Sum(); bytes != (p-1)*n {
			t.Errorf("%d ranks: %d bytes, want %d", p, bytes, (p-1)*n)
		}
		for rank, sent := range traffic.Bytes {
			if sent > n {
				t.Errorf("%d ranks: rank %d sends %d bytes", p, rank, sent)
			}
		}
	}
}
