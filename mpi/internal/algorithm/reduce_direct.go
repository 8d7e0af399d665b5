package algorithm

// reduceDirect sends everything to root, which combines it in canonical order.
func reduceDirect(p Port, buf []byte, root int, r Reduction) error {
	told := p.Tickets(p.Size())[:0] // of empty messages that tell that root has come
	for rank := range p.Size() {
		switch {
		case rank == root:
		case p.Rank() == root:
			told = append(told, p.Send(rank, nil))
		case p.Rank() == rank:
			told = append(told, p.Recv(root, nil))
		}
	}
	if err := runStar(p, buf, r, root, false); err != nil {
		return err
	}
	return WaitAll(p, told...)
}

// costReduceDirect is alpha + (p-1) n (beta + gamma), overlapped.
func costReduceDirect(m Machine, size, n int) float64 {
	if size == 1 {
		return 0
	}
	share := float64(min(n, segmentBytes) * (size - 1))
	return m.posted(size-1) + float64(n*(size-1))*max(m.Beta, m.Gamma) + share*min(m.Beta, m.Gamma)
}

// reduceScattered has every rank reduce a part of the buffer, in canonical order, and send it to root (Rabenseifner
// 2004, with direct messages). For large buffers: no rank moves more than the root's 2n bytes.
func reduceScattered(p Port, buf []byte, root int, r Reduction) error {
	return runDirect(p, buf, r, root)
}

// costReduceScattered is that of the all-reduce: root gets as much as there.
func costReduceScattered(m Machine, size, n int) float64 { return costDirect(m, size, n) }
