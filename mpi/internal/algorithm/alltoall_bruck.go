package algorithm

// allToAllBruck takes L = ceil(log2 p) rounds, and sends each block on up to L times: a block for the i'th rank after
// goes 2^k ranks on in round k where i has bit k (Bruck et al. 1997). All blocks have the same length.
func allToAllBruck(p Port, out []byte, _ []int, in []byte, _ []int) error {
	rank, size := p.Rank(), p.Size()
	n := len(in) / size
	// Block i of turned is for the i'th rank after whoever holds it; a round packs up to half of them.
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

// next is the next number after i that has the bit.
func next(i, bit int) int { return (i + 1) | bit }

// costAllToAllBruck is L alpha + n/2 L beta with L = ceil(log2 p), and gamma for the bytes that are turned about and packed.
func costAllToAllBruck(m Machine, size, n int) float64 {
	rounds := float64(levels(size))
	return rounds*(m.Alpha+float64(n)/2*m.Beta) + m.copied(size, (2+rounds)*float64(n))
}
