package shm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"unsafe"
)

// mixed is a reduction of uint32 that is neither commutative nor associative: another order gives other bits.
var mixed = &Reduction{Size: 4, Kernel: func(dst, a, b []byte) {
	d, x, y := numbers(dst), numbers(a), numbers(b)
	for i := range d {
		d[i] = mix(x[i], y[i])
	}
}}

// mixedTwin is mixed with a kernel that stores its result twice.
var mixedTwin = &Reduction{Size: 4, Kernel: mixed.Kernel, Kernel2: func(dst, dst2, a, b []byte) {
	d, e, x, y := numbers(dst), numbers(dst2), numbers(a), numbers(b)
	for i := range d {
		d[i] = mix(x[i], y[i])
		e[i] = d[i]
	}
}}

func mix(a, b uint32) uint32 { return 3*a + 5*b ^ 7 }

func numbers(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func bytesOf(numbers []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(numbers))), 4*len(numbers))
}

// canonical combines neighbors in pairs, level by level. An input that is left over moves up.
func canonical(inputs [][]uint32) []uint32 {
	for len(inputs) > 1 {
		var up [][]uint32
		for i := 0; i < len(inputs); i += 2 {
			if i+1 == len(inputs) {
				up = append(up, inputs[i])
				continue
			}
			both := make([]uint32, len(inputs[i]))
			for j := range both {
				both[j] = mix(inputs[i][j], inputs[i+1][j])
			}
			up = append(up, both)
		}
		inputs = up
	}
	return inputs[0]
}

// lengths are numbers of 4-byte elements around every limit between the ways for short and long data.
var lengths = []int{0, 1, 2, 3, 16, 17, 255, splitFrom / 4, splitFrom/4 + 1, directFrom/4 - 1, directFrom / 4,
	inlineSize/4 - 1, inlineSize / 4, inlineSize/4 + 1, copyLimit / 4, copyLimit/4 + 1,
	chunkSize/4 - 1, chunkSize / 4, chunkSize/4 + 1, 3*chunkSize/4 + 17, readFrom,
	readFrom/4 - 1, 1<<18 + 7}

// scene is one call, which all ranks make from the same random numbers.
type scene struct {
	random      *rand.Rand
	m           *member
	inputs      [][]uint32 // of all ranks
	at          []int      // bounds of blocks in bytes
	root        int
	r           *Reduction
	offset      []int // where each rank's buffer is in its registered memory; -1: not there
	fingerprint Fingerprint
}

func newScene(m *member, random *rand.Rand, step int) *scene {
	s := &scene{random: random, m: m, fingerprint: Fingerprint{uint64(step)}, r: mixed}
	length := lengths[random.IntN(len(lengths))]
	if random.IntN(3) == 0 {
		length = random.IntN(length + 1)
	}
	s.root = random.IntN(m.size)
	if random.IntN(2) == 0 {
		s.r = mixedTwin
	}
	m.node.readable = random.IntN(2) == 0 && m.readable
	some, every := random.IntN(3) == 0, random.IntN(2) == 0
	s.at = []int{0}
	for rank := range m.size {
		input := make([]uint32, length)
		seed := random.Uint32()
		for i := range input {
			seed = seed*1664525 + 1013904223 // Knuth's generator
			input[i] = seed
		}
		s.inputs = append(s.inputs, input)
		offset := -1
		if at := 4 * random.IntN(1000); every || some && rank%2 == 0 {
			offset = at
		}
		s.offset = append(s.offset, offset)
		bound := s.at[rank] + 4*random.IntN(length-s.at[rank]/4+1)
		if random.IntN(2) == 0 {
			bound = length * (rank + 1) / m.size * 4
		}
		s.at = append(s.at, max(bound, s.at[rank]))
	}
	s.at[m.size] = 4 * length
	return s
}

// bounds returns the bounds of blocks for the given number of receivers. They are at, but without messages no block is longer than a cell.
func (s *scene) bounds(receivers int) []int {
	if s.m.p.lanes != nil {
		return s.at
	}
	bounds := []int{0}
	for rank := range s.m.size {
		n := min(s.at[rank+1]-s.at[rank], (cellSize(receivers)-lengthSize)/4*4)
		bounds = append(bounds, bounds[rank]+n)
	}
	return bounds
}

// evenBlock returns the length of a block in elements. Without messages, it is limited to what fits inline if there are inline blocks.
func (s *scene) evenBlock(elements, inline int) int {
	if s.m.p.lanes != nil {
		return elements
	}
	return min(elements, inlineSize/inline/4)
}

// buffer returns this rank's buffer with its input.
func (s *scene) buffer() []byte {
	input := bytesOf(s.inputs[s.m.rank])
	if at := s.offset[s.m.rank]; at >= 0 {
		buf := s.m.region.Bytes()[at:][:len(input)]
		copy(buf, input)
		return buf
	}
	return bytes.Clone(input)
}

// calls are the collectives. Each returns its result and what that must be.
var calls = map[string]func(s *scene, buf []byte) (got []byte, want []uint32, err error){
	"all_reduce": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		return buf, canonical(s.inputs), s.m.node.AllReduce(s.m.w, s.fingerprint, buf, s.r)
	},
	"reduce": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		want := s.inputs[s.m.rank]
		if s.root == s.m.rank {
			want = canonical(s.inputs)
		}
		return buf, want, s.m.node.Reduce(s.m.w, s.fingerprint, buf, s.root, s.r)
	},
	"broadcast": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		return buf, s.inputs[s.root], s.m.node.Broadcast(s.m.w, s.fingerprint, buf, s.root)
	},
	"all_gather": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		var want []uint32
		for rank, input := range s.inputs {
			want = append(want, input[s.at[rank]/4:s.at[rank+1]/4]...)
		}
		in := block(buf, s.at, s.m.rank)
		if s.random.IntN(2) == 0 {
			return buf, want, s.m.node.AllGather(s.m.w, s.fingerprint, buf, s.at, in)
		}
		out := make([]byte, len(buf))
		return out, want, s.m.node.AllGather(s.m.w, s.fingerprint, out, s.at, in)
	},
	"reduce_scatter": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		from, to := s.at[s.m.rank], s.at[s.m.rank+1]
		out := make([]byte, to-from)
		err := s.m.node.ReduceScatter(s.m.w, s.fingerprint, out, buf, s.at, s.r)
		if !bytes.Equal(buf, bytesOf(s.inputs[s.m.rank])) {
			return nil, nil, fmt.Errorf("the input has changed")
		}
		return out, canonical(s.inputs)[from/4 : to/4], err
	},
	"all_to_all": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		block := len(s.inputs[0]) / s.m.size
		var want []uint32
		for _, input := range s.inputs {
			want = append(want, input[s.m.rank*block:][:block]...)
		}
		out := make([]byte, 4*len(want))
		return out, want, s.m.node.AllToAll(s.m.w, s.fingerprint, out, buf[:len(out)], evenBounds(4*block, s.m.size))
	},
	"scatter": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		block := s.evenBlock(len(s.inputs[0])/s.m.size, s.m.size-1)
		out, in, at := make([]byte, 4*block), []byte(nil), []int(nil)
		inPlace := s.random.IntN(2) == 0
		if s.m.rank == s.root {
			in, at = buf[:4*block*s.m.size], evenBounds(4*block, s.m.size)
			if inPlace {
				out = window(in, s.root, len(out))
			}
		}
		want := s.inputs[s.root][s.m.rank*block:][:block]
		return out, want, s.m.node.Scatter(s.m.w, s.m.p, s.fingerprint, out, in, at, s.root)
	},
	"gather": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		block := s.evenBlock(len(s.inputs[0]), 1)
		buf = buf[:4*block]
		if s.m.rank != s.root {
			return buf, s.inputs[s.m.rank][:block], s.m.node.Gather(s.m.w, s.m.p, s.fingerprint, nil, nil, buf, s.root)
		}
		var want []uint32
		for _, input := range s.inputs {
			want = append(want, input[:block]...)
		}
		out := make([]byte, 4*len(want))
		return out, want, s.m.node.Gather(s.m.w, s.m.p, s.fingerprint, out, evenBounds(len(buf), s.m.size), buf, s.root)
	},
	"gather_v": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		at := s.bounds(1)
		in := block(buf, at, s.m.rank)
		if s.m.rank != s.root {
			want := s.inputs[s.m.rank][at[s.m.rank]/4 : at[s.m.rank+1]/4]
			return in, want, s.m.node.GatherV(s.m.w, s.m.p, s.fingerprint, nil, nil, in, s.root)
		}
		var want []uint32
		for rank, input := range s.inputs {
			want = append(want, input[at[rank]/4:at[rank+1]/4]...)
		}
		out := make([]byte, 4*len(want))
		return out, want, s.m.node.GatherV(s.m.w, s.m.p, s.fingerprint, out, at, in, s.root)
	},
	"scatter_v": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		at := s.bounds(s.m.size)
		want := s.inputs[s.root][at[s.m.rank]/4 : at[s.m.rank+1]/4]
		out := make([]byte, 4*len(want))
		if s.m.rank != s.root {
			return out, want, s.m.node.ScatterV(s.m.w, s.m.p, s.fingerprint, out, nil, nil, s.root)
		}
		return out, want, s.m.node.ScatterV(s.m.w, s.m.p, s.fingerprint, out, buf, at, s.root)
	},
	"all_to_all_v": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		bounds := s.bounds(s.m.size)
		// The length of the block from rank a to rank b depends on a-b, so that two ranks send each other different lengths.
		length := func(a, b int) int {
			i := (a - b + s.m.size) % s.m.size
			return bounds[i+1] - bounds[i]
		}
		var want []uint32
		inAt, outAt := []int{0}, []int{0}
		for other, input := range s.inputs {
			inAt = append(inAt, inAt[other]+length(s.m.rank, other))
			from := 0
			for to := range s.m.rank {
				from += length(other, to)
			}
			want = append(want, input[from/4:][:length(other, s.m.rank)/4]...)
			outAt = append(outAt, 4*len(want))
		}
		out := make([]byte, 4*len(want))
		return out, want, s.m.node.AllToAllV(s.m.w, s.m.p, s.fingerprint, out, outAt, buf, inAt)
	},
	"scan": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		return buf, canonical(s.inputs[:s.m.rank+1]), s.m.node.Scan(s.m.w, s.fingerprint, buf, s.r)
	},
	"barrier": func(s *scene, buf []byte) ([]byte, []uint32, error) {
		return nil, nil, s.m.node.Barrier(s.m.w, s.fingerprint)
	},
}

// evenBounds returns the bounds of blocks of equal length, one for each rank.
func evenBounds(block, ranks int) []int {
	at := make([]int, ranks+1)
	for r := range at {
		at[r] = r * block
	}
	return at
}

var callNames = []string{"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "scan",
	"barrier", "gather_v", "scatter_v", "all_to_all_v"}

// verify makes random calls and checks every result.
func (m *member) verify(seed uint64, steps int) error {
	random := rand.New(rand.NewPCG(seed, 0))
	m.w.jitter = rand.New(rand.NewPCG(seed, uint64(m.rank)+1))
	for step := range steps {
		s := newScene(m, random, step)
		name := callNames[random.IntN(len(callNames))]
		got, want, err := calls[name](s, s.buffer())
		if err != nil || !bytes.Equal(got, bytesOf(want)) {
			return fmt.Errorf("step %d: rank %d: %s of %d, blocks %v, root %d, registered at %v: %v; result right: %v",
				step, m.rank, name, len(s.inputs[0]), s.at, s.root, s.offset, err, bytes.Equal(got, bytesOf(want)))
		}
	}
	return nil
}
