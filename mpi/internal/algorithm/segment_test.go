package algorithm

import "testing"

func TestPartsEndBetweenElements(t *testing.T) {
	for _, c := range []struct{ size, length, n int }{{4, 0, 3}, {4, 4, 3}, {7, 700, 9}, {32, 32 * 5, 8}, {3, 3 * 100001, 16}} {
		r, b := Reduction{Size: c.size}, make([]byte, c.length)
		end, shortest, longest := 0, c.length, 0
		for i := range c.n {
			part := r.part(b, i, c.n)
			end += len(part)
			shortest, longest = min(shortest, len(part)), max(longest, len(part))
			if len(part)%c.size != 0 {
				t.Errorf("%+v: part %d is cut within an element", c, i)
			}
		}
		if end != c.length || longest-shortest > c.size || longest != r.widest(c.length, c.n) {
			t.Errorf("%+v: %d bytes in parts of %d to %d, and the widest of %d", c, end, shortest, longest, r.widest(c.length, c.n))
		}
		if k := r.segments(c.length); r.widest(c.length, k) > max(segmentBytes, c.size) {
			t.Errorf("%+v: a segment of %d bytes", c, r.widest(c.length, k))
		}
	}
}

// The segments of pipelines are powers of two between the limits. They are longer for longer messages, and shorter for deeper pipelines.
func TestPipelineSegmentsAreBoundedPowersOfTwo(t *testing.T) {
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
