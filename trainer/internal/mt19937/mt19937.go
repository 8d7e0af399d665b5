package mt19937

// Size and shift of the recurrence, by the names of the paper.
const (
	n = 624
	m = 397

	matrixA   = 0x9908b0df
	upperMask = 0x80000000
	lowerMask = 0x7fffffff
)

// Generator is one stream of numbers. It is not safe for concurrent use.
type Generator struct {
	state [n]uint32
	next  int // state[next] is tempered and handed out next; n: all used up
}

// New returns the generator that torch.manual_seed(seed) sets up. As there, only the low 32
// bits of seed count.
func New(seed uint64) *Generator {
	g := new(Generator)
	g.Seed(seed)
	return g
}

// Seed starts g anew, as New(seed) would.
func (g *Generator) Seed(seed uint64) {
	g.state[0] = uint32(seed)
	for i := uint32(1); i < n; i++ {
		last := g.state[i-1]
		g.state[i] = 1812433253*(last^last>>30) + i
	}
	g.next = n
}

// Uint32 returns the next number, uniform over all uint32 values.
func (g *Generator) Uint32() uint32 {
	if g.next == n {
		g.refill()
	}
	y := g.state[g.next]
	g.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// refill computes the next n words of the recurrence in place.
func (g *Generator) refill() {
	for i := range g.state {
		y := g.state[i]&upperMask | g.state[(i+1)%n]&lowerMask
		next := g.state[(i+m)%n] ^ y>>1
		if y&1 != 0 {
			next ^= matrixA
		}
		g.state[i] = next
	}
	g.next = 0
}
