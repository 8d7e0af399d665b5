package algorithm

// AllToAllFunc sends block i of in to rank i, which receives it as the block of this rank in its out. in and out do not overlap.
type AllToAllFunc func(p Port, out []byte, outAt []int, in []byte, inAt []int) error

// AllToAlls are the algorithms of an all-to-all of blocks of one length.
func AllToAlls() []Entry[AllToAllFunc] {
	return []Entry[AllToAllFunc]{
		{Traits{Code: 1, Name: "direct", Canonical: true, Cost: Machine.allAtOnce}, allToAllDirect},
		{Traits{Code: 2, Name: "pairwise", Canonical: true, Cost: Machine.oneByOne}, allToAllPairwise},
		{Traits{Code: 3, Name: "bruck", Canonical: true, Cost: costAllToAllBruck}, allToAllBruck},
	}
}

// AllToAllsV are the ones of AllToAlls that take blocks of different lengths, each known only to its sender and its receiver.
func AllToAllsV() []Entry[AllToAllFunc] { return AllToAlls()[:2:2] }

// allToAllDirect posts all messages at the same time. Each rank begins with the rank after it, so that not all of them send to rank 0
// first.
func allToAllDirect(p Port, out []byte, outAt []int, in []byte, inAt []int) error {
	rank, size := p.Rank(), p.Size()
	posted := p.Handles(2 * size)[:0]
	for i := 1; i < size; i++ {
		from := (rank - i + size) % size
		posted = append(posted, p.Recv(from, out[outAt[from]:outAt[from+1]]))
	}
	for i := 1; i < size; i++ {
		to := (rank + i) % size
		posted = append(posted, p.Send(to, in[inAt[to]:inAt[to+1]]))
	}
	copy(out[outAt[rank]:outAt[rank+1]], in[inAt[rank]:inAt[rank+1]])
	return WaitAll(p, posted...)
}

// allToAllPairwise sends to one rank and receives from one at a time. In round i it sends to the i'th rank after it, and receives from the
// i'th before it. So a rank gets only one long message at a time (Thakur, Rabenseifner and Gropp 2005, section 4.3).
func allToAllPairwise(p Port, out []byte, outAt []int, in []byte, inAt []int) error {
	rank, size := p.Rank(), p.Size()
	copy(out[outAt[rank]:outAt[rank+1]], in[inAt[rank]:inAt[rank+1]])
	for i := 1; i < size; i++ {
		to, from := (rank+i)%size, (rank-i+size)%size
		err := WaitAll(p, p.Recv(from, out[outAt[from]:outAt[from+1]]), p.Send(to, in[inAt[to]:inAt[to+1]]))
		if err != nil {
			return err
		}
	}
	return nil
}

// allToAllBruck takes L = ceil(log2 p) rounds, and sends each block up to L times. A block for the i'th rank after this one moves 2^k ranks
// on in round k if i has bit k (Bruck et al. 1997). All blocks have the same length.
func allToAllBruck(p Port, out []byte, _ []int, in []byte, _ []int) error {
	rank, size := p.Rank(), p.Size()
	n := len(in) / size
	// Block i of turned is for the i'th rank after the one that holds it. A round packs up to half of the blocks.
	most := size / 2 * n
	scratch := p.Scratch(size*n + 2*most)
	turned, going, coming := scratch[:size*n], scratch[size*n:size*n+most], scratch[size*n+most:]
	copy(turned[copy(turned, in[rank*n:]):], in[:rank*n])

	for bit := 1; bit < size; bit *= 2 {
		length := 0
		for i := bit; i < size; i = next(i, bit) {
			length += copy(going[length:], turned[i*n:(i+1)*n])
		}
		err := WaitAll(p, p.Recv((rank-bit+size)%size, coming[:length]), p.Send((rank+bit)%size, going[:length]))
		if err != nil {
			return err
		}
		length = 0
		for i := bit; i < size; i = next(i, bit) {
			length += copy(turned[i*n:(i+1)*n], coming[length:])
		}
	}
	for i := range size {
		from := (rank - i + size) % size
		copy(out[from*n:(from+1)*n], turned[i*n:])
	}
	return nil
}

// next returns the next number after i that has the bit.
func next(i, bit int) int { return (i + 1) | bit }

// costAllToAllBruck is L alpha + n/2 L beta with L = ceil(log2 p), and gamma for the bytes that are reordered and packed.
func costAllToAllBruck(m Machine, size, n int) float64 {
	rounds := float64(levels(size))
	return rounds*(m.Alpha+float64(n)/2*m.both()) + m.copied((2+rounds)*float64(n))
}
