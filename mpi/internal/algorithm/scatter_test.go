package algorithm

import (
	"fmt"
	"testing"
)

// torch: root i sends the value i to all.
func TestScatterAsTorch(t *testing.T) {
	forPeers(t, Scatters(), func(p Port, run ScatterFunc) error {
		for root := range p.Size() {
			var in []byte
			var at []int
			if p.Rank() == root {
				in, at = encode(repeat(root, p.Size())), ends(repeat(1, p.Size()))
			}
			out := make([]byte, 8)
			if err := run(p, out, in, at, root); err != nil {
				return err
			}
			if err := wantValues(out, []int{root}); err != nil {
				return fmt.Errorf("root %d: %w", root, err)
			}
		}
		return nil
	})
}
