package mt19937

import "testing"

// The first numbers of seed 5489, and the 10,000th, which the C++ standard
// prescribes for std::mt19937 ([rand.predef]: 4123659995).
func TestReferenceStream(t *testing.T) {
	g := New(5489)
	for i, want := range []uint32{3499211612, 581869302, 3890346734, 3586334585, 545404204} {
		if got := g.Uint32(); got != want {
			t.Fatalf("number %d is %d, want %d", i, got, want)
		}
	}
	for range 10000 - 5 - 1 {
		g.Uint32()
	}
	if got := g.Uint32(); got != 4123659995 {
		t.Fatalf("the 10,000th number is %d, want 4123659995", got)
	}
}

func TestSeedCountsModulo32Bits(t *testing.T) {
	if a, b := New(7).Uint32(), New(7+1<<32).Uint32(); a != b {
		t.Fatalf("seeds 7 and 7 + 2^32 give %d and %d, want the same", a, b)
	}
	g := New(7)
	first := g.Uint32()
	for range 1000 {
		g.Uint32()
	}
	g.Seed(7)
	if again := g.Uint32(); again != first {
		t.Fatalf("after Seed the first number is %d, want %d", again, first)
	}
}

func BenchmarkUint32(b *testing.B) {
	g := New(1)
	for b.Loop() {
		g.Uint32()
	}
}
