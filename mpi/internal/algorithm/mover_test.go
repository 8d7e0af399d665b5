package algorithm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// mover is one algorithm of one of the collectives that move bytes.
type mover struct {
	name    string // collective/algorithm
	rooted  bool
	uneven  bool // takes blocks of different lengths
	fits    func(size int) bool
	cost    func(m Machine, size, n int) float64
	perform func(p Port, j payload) error
}

// payload is what a mover moves.
type payload struct {
	lengths []int // the length of each rank's block; a broadcast uses only the first
	root    int
}

// at returns the bounds of the blocks.
func (j payload) at() []int {
	at := []int{0}
	for _, n := range j.lengths {
		at = append(at, at[len(at)-1]+n)
	}
	return at
}

// evenPayload returns a payload whose blocks have the same length.
func evenPayload(size, length, root int) payload {
	return payload{lengths: slices.Repeat([]int{length}, size), root: root}
}

// between returns the length of the block from one rank to another in an all-to-all. If the payload's blocks differ, so do the blocks of a
// rank.
func (j payload) between(from, to int) int { return j.lengths[(from+2*to)%len(j.lengths)] }

// content returns n bytes that rank from has for rank to.
func content(from, to, n int) []byte {
	b := make([]byte, 0, n+8)
	for random := rand.NewPCG(uint64(from), uint64(to)); len(b) < n; {
		b = binary.LittleEndian.AppendUint64(b, random.Uint64())
	}
	return b[:n]
}

func wantBytes(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Errorf("%s: %d bytes, %d wanted; they differ at %d", what, len(got), len(want), i)
}

// movers returns every mover.
func movers() []mover {
	var all []mover
	for _, e := range Broadcasts() {
		all = append(all, mover{"broadcast/" + e.Name, true, true, e.Fits, e.Cost, func(p Port, j payload) error {
			want := content(j.root, 0, j.lengths[0])
			buf := make([]byte, len(want))
			if p.Rank() == j.root {
				copy(buf, want)
			}
			if err := e.Run(p, buf, j.root); err != nil {
				return err
			}
			return wantBytes("buf", buf, want)
		}})
	}
	for _, e := range AllGathers() {
		all = append(all, mover{"all_gather/" + e.Name, false, true, e.Fits, e.Cost, func(p Port, j payload) error {
			at := j.at()
			want := j.gathered()
			buf := make([]byte, len(want))
			copy(buf[at[p.Rank()]:at[p.Rank()+1]], want[at[p.Rank()]:])
			if err := e.Run(p, buf, at); err != nil {
				return err
			}
			return wantBytes("buf", buf, want)
		}})
	}
	for _, e := range Gathers() {
		all = append(all, mover{"gather/" + e.Name, true, in(GathersV(), e.Code), e.Fits, e.Cost, func(p Port, j payload) error {
			own := content(p.Rank(), 0, j.lengths[p.Rank()])
			before := bytes.Clone(own)
			var out []byte
			var at []int
			if p.Rank() == j.root {
				at = j.at()
				out = make([]byte, at[len(at)-1])
			}
			if err := e.Run(p, out, at, own, j.root); err != nil {
				return err
			}
			if err := wantBytes("in", own, before); err != nil || p.Rank() != j.root {
				return err
			}
			return wantBytes("out", out, j.gathered())
		}})
	}
	for _, e := range Scatters() {
		all = append(all, mover{"scatter/" + e.Name, true, in(ScattersV(), e.Code), e.Fits, e.Cost, func(p Port, j payload) error {
			var blocks []byte
			var at []int
			if p.Rank() == j.root {
				at, blocks = j.at(), j.gathered()
			}
			out := make([]byte, j.lengths[p.Rank()])
			if err := e.Run(p, out, blocks, at, j.root); err != nil {
				return err
			}
			return wantBytes("out", out, content(p.Rank(), 0, len(out)))
		}})
	}
	for _, e := range AllToAlls() {
		all = append(all, mover{"all_to_all/" + e.Name, false, in(AllToAllsV(), e.Code), e.Fits, e.Cost, func(p Port, j payload) error {
			var blocks, want []byte
			inAt, outAt := []int{0}, []int{0}
			for other := range p.Size() {
				blocks = append(blocks, content(p.Rank(), other, j.between(p.Rank(), other))...)
				want = append(want, content(other, p.Rank(), j.between(other, p.Rank()))...)
				inAt, outAt = append(inAt, len(blocks)), append(outAt, len(want))
			}
			before, out := bytes.Clone(blocks), make([]byte, len(want))
			if err := e.Run(p, out, outAt, blocks, inAt); err != nil {
				return err
			}
			if err := wantBytes("in", blocks, before); err != nil {
				return err
			}
			return wantBytes("out", out, want)
		}})
	}
	for _, e := range Barriers() {
		all = append(all, mover{"barrier/" + e.Name, false, true, e.Fits, e.Cost, func(p Port, _ payload) error { return e.Run(p) }})
	}
	return all
}

// gathered returns the blocks of all ranks, one after the other.
func (j payload) gathered() []byte {
	var all []byte
	for rank, n := range j.lengths {
		all = append(all, content(rank, 0, n)...)
	}
	return all
}

func in[F any](entries []Entry[F], code uint8) bool {
	return slices.ContainsFunc(entries, func(e Entry[F]) bool { return e.Code == code })
}

// cuts reports whether the mover sends a block in segments.
func (m mover) cuts() bool {
	return strings.HasPrefix(m.name, "broadcast/") || m.name == "all_gather/ring"
}

// takes reports whether the mover can move this payload.
func (m mover) takes(j payload) bool {
	if m.fits != nil && !m.fits(len(j.lengths)) {
		return false
	}
	return m.uneven || slices.Min(j.lengths) == slices.Max(j.lengths)
}

// roots returns the ranks to try as the root.
func (m mover) roots(size int) []int {
	if !m.rooted || size == 1 {
		return []int{0}
	}
	return slices.Compact([]int{0, size / 2, size - 1})
}
