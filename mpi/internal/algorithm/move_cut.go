package algorithm

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
