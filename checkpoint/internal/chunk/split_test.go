package chunk

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

var allLayouts = []Layout{
	{Width: 1}, {Width: 2}, {Width: 4}, {Width: 8},
	{Width: 1, Float: true}, {Width: 2, Float: true}, {Width: 4, Float: true}, {Width: 8, Float: true},
}

// TestSplitGivesThePlanesByHand compares with planes made by hand. In bfloat16, 1 + 2^-7 is 0x3f81 and its negative is 0xbf81. The exponent
// is 0x7f. The 7 bits of the mantissa, followed by the sign, make the lower byte.
func TestSplitGivesThePlanesByHand(t *testing.T) {
	for _, c := range []struct {
		layout Layout
		src    []byte
		want   [][]byte
	}{
		{Layout{1, false}, []byte{1, 2, 0x83}, [][]byte{{1, 2, 0x83}}},
		{Layout{1, true}, []byte{1, 2, 0x83}, [][]byte{{2, 4, 0x07}}},
		{Layout{2, false}, []byte{0x81, 0x3f, 0x81, 0xbf}, [][]byte{{0x81, 0x81}, {0x3f, 0xbf}}},
		{Layout{2, true}, []byte{0x81, 0x3f, 0x81, 0xbf}, [][]byte{{0x02, 0x03}, {0x7f, 0x7f}}},
		{Layout{4, false}, []byte{1, 2, 3, 0x84}, [][]byte{{1}, {2}, {3}, {0x84}}},
		{Layout{4, true}, []byte{1, 2, 3, 0x84}, [][]byte{{3}, {4}, {6}, {8}}},
		{Layout{8, false}, []byte{1, 2, 3, 4, 5, 6, 7, 0x88}, [][]byte{{1}, {2}, {3}, {4}, {5}, {6}, {7}, {0x88}}},
		{Layout{8, true}, []byte{1, 2, 3, 4, 5, 6, 7, 0x88}, [][]byte{{3}, {4}, {6}, {8}, {10}, {12}, {14}, {16}}},
	} {
		var p planes
		n := len(c.src) / c.layout.Width
		p.cut(make([]byte, len(c.src)), c.layout.Width, n)
		split(&p, c.src, c.layout, &portable)
		for k, want := range c.want {
			if !bytes.Equal(p[k], want) {
				t.Errorf("%+v: plane %d of % x is % x, not % x", c.layout, k, c.src, p[k], want)
			}
		}
	}
}

// All kernels give the same bytes as the loop that handles one element after the other, and do not write anywhere else.
func TestKernelsGiveThePlainLoopsBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, k := range map[string]*kernels{"go": &portable, "best": &best} {
		for _, l := range allLayouts {
			for n := range 100 {
				checkKernels(t, name, k, l, n, r)
			}
			checkKernels(t, name, k, l, MaxBytes/l.Width, r)
		}
	}
}

func checkKernels(t *testing.T, name string, k *kernels, l Layout, n int, r *rand.Rand) {
	t.Helper()
	src := make([]byte, n*l.Width)
	for i := range src {
		src[i] = byte(r.Uint32())
	}
	want, wantBytes := apart(l.Width, n)
	splitEach(&want, src, 0, l)
	got, gotBytes := apart(l.Width, n)
	split(&got, src, l, k)
	if !bytes.Equal(gotBytes, wantBytes) {
		t.Fatalf("%s, %+v, %d elements: split gives other planes than its definition", name, l, n)
	}
	whole := bytes.Repeat([]byte{guard}, len(src)+2*margin)
	join(whole[margin:margin+len(src)], &got, l, k)
	if !bytes.Equal(whole[margin:margin+len(src)], src) {
		t.Fatalf("%s, %+v, %d elements: join is not the inverse of split", name, l, n)
	}
	if edges := append(bytes.Clone(whole[:margin]), whole[margin+len(src):]...); bytes.Count(edges, []byte{guard}) != 2*margin {
		t.Fatalf("%s, %+v, %d elements: join wrote beside its destination", name, l, n)
	}
}

const (
	guard  = 0xa5
	margin = 64
)

// apart returns planes that do not touch each other, in memory that is otherwise full of guard bytes.
func apart(width, n int) (p planes, all []byte) {
	all = bytes.Repeat([]byte{guard}, margin+width*(n+margin))
	for k := range width {
		at := margin + k*(n+margin)
		p[k] = all[at : at+n : at+n]
	}
	return p, all
}

func BenchmarkSplit(b *testing.B) {
	for name, k := range map[string]*kernels{"go": &portable, "best": &best} {
		for width, w := range map[string]int{"2": 2, "4": 4, "8": 8} {
			l := Layout{Width: w, Float: true}
			var p planes
			p.cut(make([]byte, MaxBytes), w, MaxBytes/w)
			src := make([]byte, MaxBytes)
			b.Run("split/"+width+"/"+name, func(b *testing.B) {
				b.SetBytes(MaxBytes)
				for b.Loop() {
					split(&p, src, l, k)
				}
			})
			b.Run("join/"+width+"/"+name, func(b *testing.B) {
				b.SetBytes(MaxBytes)
				for b.Loop() {
					join(src, &p, l, k)
				}
			})
		}
	}
}
