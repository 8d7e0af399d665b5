package distributed

import (
	"os"

	"ddpbatch/checkpoint"
)

// copies are the buffers that hold the state while it is written: none, one, or one more for the full checkpoint that deltas refer to.
type copies struct {
	live    []checkpoint.Piece   // this rank's pieces where training changes them
	buffers [][]checkpoint.Piece // the same pieces, in memory of our own
}

// newCopies reserves n buffers. They are touched, so that a machine with too little memory says so now and not at the first save.
func newCopies(live []checkpoint.Piece, n int) *copies {
	c := &copies{live: live}
	var size int
	for _, p := range live {
		size += len(p.Data)
	}
	for range n {
		buf := make([]byte, size)
		for i := 0; i < size; i += os.Getpagesize() {
			buf[i] = 1
		}
		pieces := make([]checkpoint.Piece, len(live))
		for i, p := range live {
			pieces[i] = p
			pieces[i].Data, buf = buf[:len(p.Data):len(p.Data)], buf[len(p.Data):]
		}
		c.buffers = append(c.buffers, pieces)
	}
	return c
}

// take copies the live state into a buffer.
func (c *copies) take(buffer int) []checkpoint.Piece {
	to := c.buffers[buffer]
	for i, p := range c.live {
		copy(to[i].Data, p.Data)
		to[i].Base = nil
	}
	return to
}

// against is pieces as a delta to what a buffer holds.
func (c *copies) against(pieces []checkpoint.Piece, base int) []checkpoint.Piece {
	for i := range pieces {
		pieces[i].Base = c.buffers[base][i].Data
	}
	return pieces
}
