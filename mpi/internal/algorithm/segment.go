package algorithm

const (
	// segmentBytes is about how large messages are that are reduced on arrival: large enough to be
	// sent at full speed, small enough that the segment still is in a core's cache when it is reduced.
	segmentBytes = 256 << 10

	// window is how many segments between two ranks are under way at once.
	window = 4
)

// part is the i'th of n nearly equal parts of b, cut between elements. Parts of a
// buffer that has fewer elements than parts may be empty.
func (r Reduction) part(b []byte, i, n int) []byte {
	elements := len(b) / r.Size
	return b[elements*i/n*r.Size : elements*(i+1)/n*r.Size]
}

// widest is the length of the longest of n parts of length bytes.
func (r Reduction) widest(length, n int) int {
	return (length/r.Size + n - 1) / n * r.Size
}

// segments is into how many parts length bytes are cut. It is never 0: an empty message is
// one too, which tells that its sender has come.
func (r Reduction) segments(length int) int {
	whole := max(1, segmentBytes/r.Size) * r.Size
	return max(1, (length+whole-1)/whole)
}

// cuts is into how many segments n bytes are cut. It is never 0: an empty message is
// one too, which tells that its sender has come.
func cuts(n, segment int) int { return max(1, (n+segment-1)/segment) }

// cut is the i'th of the segments of b.
func cut(b []byte, segment, i int) []byte { return b[i*segment : min((i+1)*segment, len(b))] }

// The segments of pipelines whose depth matters lie between these. Smaller ones cost more messages than
// they save time on every machine; larger ones fall out of the caches on their way.
const (
	smallestSegment = 8 << 10
	largestSegment  = 256 << 10
)

// pipelineSegment is the segment for n bytes that go through depth ranks one after another. The best is
// sqrt(n alpha/(depth beta)), where the time to fill the pipeline is that of all latencies. All ranks must cut
// alike, whatever they have measured: so alpha/beta, the bytes that a link takes in the time of
// a message, is 8 KiB here, between that of shared memory and that of TCP.
func pipelineSegment(n, depth int) int {
	const product = 8 << 10
	s := largestSegment
	for s > smallestSegment && s*s/product > n/max(depth, 1) {
		s /= 2
	}
	return s
}

// phase is one of the things to be done for each step of a pipeline, delay steps
// after the step has begun.
type phase struct {
	delay int
	do    func(k int) error
}

// pipeline does the phases, given by growing delay, of all steps. At a time, later phases
// of earlier steps come first: what they free can be used again.
func pipeline(steps int, phases ...phase) error {
	last := len(phases) - 1
	for t := range steps + phases[last].delay {
		for i := last; i >= 0; i-- {
			k := t - phases[i].delay
			if k < 0 || k >= steps {
				continue
			}
			if err := phases[i].do(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// slots is scratch memory for n buffers of up to width bytes, used in turn.
type slots struct {
	memory   []byte
	width, n int
}

func newSlots(p Port, width, n int) slots {
	const align = 64 // that of a cache line, more than any element's
	width = (width + align - 1) / align * align
	return slots{memory: p.Scratch(width * n), width: width, n: n}
}

// at is the slot of number i, cut to length.
func (s slots) at(i, length int) []byte {
	start := i % s.n * s.width
	return s.memory[start : start+length : start+length]
}
