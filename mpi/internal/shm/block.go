package shm

import "fmt"

// checkBounds refuses bounds of blocks that are not one for each rank, in order, within buf.
func (n *Node) checkBounds(buf []byte, at []int) error {
	if len(at) != len(n.ranks)+1 {
		return fmt.Errorf("%d bounds of blocks for %d ranks", len(at), len(n.ranks))
	}
	for i, end := range at {
		if i > 0 && end < at[i-1] || i == 0 && end < 0 || end > len(buf) {
			return fmt.Errorf("block bounds %v of %d bytes", at, len(buf))
		}
	}
	return nil
}

// block is block i of buf. It ends where it does, for append cannot be meant.
func block(buf []byte, at []int, i int) []byte { return buf[at[i]:at[i+1]:at[i+1]] }

func longestBlock(at []int) int {
	longest := 0
	for i := range len(at) - 1 {
		longest = max(longest, at[i+1]-at[i])
	}
	return longest
}
