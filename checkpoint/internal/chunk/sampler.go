package chunk

import (
	"crypto/subtle"
	"math/bits"
)

// A sample is 1024 elements in 16 runs, spread evenly over the chunk. That is enough to know the entropy of a plane within
// about 0.05 bits a byte, if all of it is alike. Its cost is in doc.go.
const (
	sampleElements = 1024
	sampleRuns     = 16
	runElements    = sampleElements / sampleRuns
)

// A sampler looks at a few elements of a chunk and chooses how to store each plane. The result is a function of the
// bytes alone: the arithmetic is on integers, so that all machines agree.
type sampler struct {
	elements [sampleElements * maxWidth]byte
	split    [sampleElements * maxWidth]byte
	counts   [256]uint16
}

// A planeChoice is how to store the planes of a chunk, and the expected size.
type planeChoice struct {
	codec [maxWidth]PlaneCodec
	cost  int // bytes
}

// choose looks at raw, or at raw XOR base if base is not nil.
func (s *sampler) choose(raw, base []byte, l Layout) planeChoice {
	n := len(raw) / l.Width
	taken := s.take(raw, base, l.Width)
	var p planes
	m := len(taken) / l.Width
	p.cut(s.split[:], l.Width, m)
	split(&p, taken, l, &best)
	var out planeChoice
	for k := range l.Width {
		codec, bits := s.plane(p[k], n, l)
		out.codec[k] = codec
		out.cost += entryBytes + int(uint64(bits)*uint64(n)/(uint64(m)<<(costBits+3)))
	}
	return out
}

// take copies the sample out of the chunk. Of a short chunk it copies everything.
func (s *sampler) take(raw, base []byte, width int) []byte {
	if len(raw) <= sampleElements*width {
		b := s.elements[:copy(s.elements[:], raw)]
		if base != nil {
			subtle.XORBytes(b, raw, base)
		}
		return b
	}
	run := runElements * width
	step := (len(raw)/width - runElements) / (sampleRuns - 1) * width
	for i := range sampleRuns {
		b := s.elements[i*run : (i+1)*run]
		if base == nil {
			copy(b, raw[i*step:])
		} else {
			subtle.XORBytes(b, raw[i*step:i*step+run], base[i*step:])
		}
	}
	return s.elements[:sampleRuns*run]
}

// plane chooses a plane's codec from a sample of it. n is the length of the whole plane. size is what the sample
// would take, in bits times 1 << costBits.
func (s *sampler) plane(sample []byte, n int, l Layout) (codec PlaneCodec, size uint32) {
	clear(s.counts[:])
	for _, v := range sample {
		s.counts[v]++
	}
	m := uint32(len(sample))
	size = costs[m]
	distinct := uint32(0)
	for _, c := range s.counts {
		size -= costs[c]
		distinct += (uint32(c) + 0xffff) >> 16
	}
	if distinct == 1 {
		return PlaneConstant, 0
	}
	// A sample holds fewer values than the plane, so its entropy is too small by this much (Miller and Madow, 1955).
	size += (distinct - 1) * halfLog2e
	switch raw := m << (costBits + 3); {
	case size > raw-raw/minGain:
		return PlaneRaw, raw
	case !l.Float || size < m<<costBits*zstdBelow/100 || n > maxHuff0:
		return PlaneZstd, size
	default:
		return PlaneHuff0, max(size, m<<costBits)
	}
}

const (
	costBits  = 10       // fractional bits of a cost
	halfLog2e = 1477 / 2 // log2(e) / 2, with costBits fractional bits
	minGain   = 64       // a plane is coded if that saves at least a 64th of it
	zstdBelow = 50       // hundredths of a bit a byte: below it, zstd beats Huffman codes, which take at least a bit a byte
)

// costs[n] is n * log2(n), with costBits fractional bits. n bytes in which each value v occurs c[v] times have an
// entropy of costs[n] less the sum of all costs[c[v]].
var costs = makeCosts()

func makeCosts() (t [sampleElements + 1]uint32) {
	for n := uint64(2); n < uint64(len(t)); n++ {
		t[n] = uint32(n * log2(n) >> (logBits - costBits))
	}
	return t
}

const logBits = 16

// log2 returns the binary logarithm of n < 1 << 31 with logBits fractional bits, rounded down. Squaring doubles the logarithm, which
// yields one more bit.
func log2(n uint64) uint64 {
	whole := uint64(bits.Len64(n) - 1)
	x := n << (31 - whole) // in [1, 2), with 31 fractional bits
	l := whole
	for range logBits {
		x = x * x >> 31
		l <<= 1
		if x >= 1<<32 {
			x >>= 1
			l |= 1
		}
	}
	return l
}
