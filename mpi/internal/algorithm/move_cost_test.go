package algorithm

import (
	"strings"
	"testing"
)

// On a machine that is as the model says, no algorithm takes longer than its cost, nor much less: formulas leave out that
// trees of other sizes than powers of two are not full, and that one segment's latency hides behind another's.
func TestMoveCosts(t *testing.T) {
	machine := Machine{Alpha: 1, Beta: 1.0 / 8192}
	for _, m := range movers() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			lengths := []int{0, 16, 8192}
			if m.cuts() {
				lengths = append(lengths, 20000) // several segments
			}
			for _, size := range []int{2, 3, 4, 5, 8, 13} {
				for _, length := range lengths {
					for _, root := range m.roots(size) {
						j, n := evenJob(size, length, root), length*size
						if !m.takes(j) {
							continue
						}
						if strings.HasPrefix(m.name, "broadcast/") {
							n = length
						}
						took := move(t, localGroup{Machine: machine}, m, j).Time
						if cost := m.cost(machine, size, n); took > cost*(1+1e-9) || took < 0.45*cost {
							t.Errorf("%d ranks, root %d, blocks of %d bytes: took %v, and its cost is %v", size, root, length, took, cost)
						}
					}
				}
			}
		})
	}
}

// Segments of pipelines are powers of two between the limits, longer for longer messages, and shorter for deeper
// pipelines.
func TestPipelineSegment(t *testing.T) {
	for _, depth := range []int{-1, 0, 1, 2, 6, 30, 1000} {
		before := 0
		for n := 0; n < 1<<32; n = 2*n + 1 {
			s := pipelineSegment(n, depth)
			if s < smallestSegment || s > largestSegment || !powerOfTwo(s) {
				t.Errorf("%d bytes, depth %d: segments of %d", n, depth, s)
			}
			if s < before || s > pipelineSegment(n, depth-1) {
				t.Errorf("%d bytes, depth %d: segments of %d, of fewer bytes %d", n, depth, s, before)
			}
			before = s
		}
	}
	// sqrt(8 KiB x 1 MiB / 2) is 64 KiB.
	if s := pipelineSegment(1<<20, 2); s != 64<<10 {
		t.Errorf("segments of %d bytes", s)
	}
}
