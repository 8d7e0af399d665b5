package algorithm

const (
	// segmentBytes is the approximate size of messages that are reduced on arrival. It is large enough to send them at full speed, and
	// small enough that a segment is still in a core's cache when it is reduced.
	segmentBytes = 256 << 10

	// window is the number of segments that are under way between two ranks at the same time.
	window = 4
)

// part returns the i'th of n nearly equal parts of b, which end between elements. If b has fewer elements than parts, some parts are empty.
func (r Reduction) part(b []byte, i, n int) []byte {
	elements := len(b) / r.Size
	return b[elements*i/n*r.Size : elements*(i+1)/n*r.Size]
}

// widest returns the length of the longest of n parts of length bytes.
func (r Reduction) widest(length, n int) int {
	return (length/r.Size + n - 1) / n * r.Size
}

// segments returns the number of segments for length bytes. It is never 0: an empty message counts as a segment, because it says that its
// sender has made the call.
func (r Reduction) segments(length int) int {
	whole := max(1, segmentBytes/r.Size) * r.Size
	return max(1, (length+whole-1)/whole)
}

// cuts returns the number of segments for n bytes. It is never 0: an empty message counts as a segment, because it says that its sender has
// made the call.
func cuts(n, segment int) int { return max(1, (n+segment-1)/segment) }

// cut returns the i'th of the segments of b.
func cut(b []byte, segment, i int) []byte { return b[i*segment : min((i+1)*segment, len(b))] }

// The limits of segments in pipelines whose depth matters. Smaller segments cost more in messages than they save, on every machine. Larger
// ones do not stay in the caches on their way.
const (
	smallestSegment = 8 << 10
	largestSegment  = 256 << 10
)

// pipelineSegment returns the segment size for n bytes that pass through depth ranks one after another. The best size is
// sqrt(n alpha/(depth beta)): then filling the pipeline takes as long as all latencies together. All ranks must use the same size, whatever
// they have measured. So alpha/beta, the number of bytes that a link carries in the time of a message, is fixed at 8 KiB. That is between
// the value of shared memory and that of TCP.
func pipelineSegment(n, depth int) int {
	const product = 8 << 10
	s := largestSegment
	for s > smallestSegment && s*s/product > n/max(depth, 1) {
		s /= 2
	}
	return s
}

// phase is one of the actions for each step of a pipeline. It happens delay steps after the step has begun.
type phase struct {
	delay int
	do    func(k int) error
}

// pipeline performs the phases of all steps. The phases are in the order of their delays. Among the actions of one time, later phases of
// earlier steps come first, because they free what other steps use again.
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
	const align = 64 // the size of a cache line, more than that of any element
	width = (width + align - 1) / align * align
	return slots{memory: p.Scratch(width * n), width: width, n: n}
}

// at returns the slot with number i, cut to length.
func (s slots) at(i, length int) []byte {
	start := i % s.n * s.width
	return s.memory[start : start+length : start+length]
}
