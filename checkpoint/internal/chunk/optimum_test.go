package chunk_test

import (
	"container/heap"
	"math/rand/v2"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"
)

// What sampling costs, held against Huffman's algorithm itself with every plane counted whole: ZipNN's way, with codes
// of any length and no tables.
func TestNearOptimum(t *testing.T) {
	e := newEncoder(t, chunk.Auto)
	for _, k := range chunktest.Kinds() {
		data, base := k.Make(rand.New(rand.NewPCG(3, 1)), 2*chunk.MaxBytes/k.Layout.Width)
		optimum := 0
		eachChunk(data, base, func(raw, base []byte) {
			optimum += min(planesOptimum(raw, nil, k.Layout), planesOptimum(raw, base, k.Layout))
		})
		_, stored := encodeAll(e, data, base, k.Layout)
		// Planes may stay raw that would lose less than a 64th, which is 0.4 % of a chunk of float32; tables take
		// 0.1 % of a plane.
		if float64(stored) > 1.005*float64(optimum) {
			t.Errorf("%s: %d bytes, Huffman codes take %d", k.Name, stored, optimum)
		}
	}
}

// planesOptimum is how many bytes the planes of raw, or of raw XOR base, take with a Huffman code each.
func planesOptimum(raw, base []byte, l chunk.Layout) int {
	w := l.Width
	var counts [8][256]int
	for i := 0; i < len(raw); i += w {
		var x uint64
		for k := w - 1; k >= 0; k-- {
			v := raw[i+k]
			if base != nil {
				v ^= base[i+k]
			}
			x = x<<8 | uint64(v)
		}
		if l.Float {
			x = x<<1 | x>>(8*w-1)
		}
		for k := range w {
			counts[k][byte(x>>(8*k))]++
		}
	}
	total := 0
	for k := range w {
		total += min(huffmanBits(counts[k][:])/8, len(raw)/w)
	}
	return total
}

// huffmanBits is the length of all codes together: the sum of the weights of the tree's inner nodes.
func huffmanBits(counts []int) (bits int) {
	var h weightHeap
	for _, c := range counts {
		if c > 0 {
			h = append(h, c)
		}
	}
	heap.Init(&h)
	for len(h) > 1 {
		sum := heap.Pop(&h).(int) + heap.Pop(&h).(int)
		bits += sum
		heap.Push(&h, sum)
	}
	return bits
}

type weightHeap []int

func (h weightHeap) Len() int           { return len(h) }
func (h weightHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h weightHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *weightHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *weightHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
