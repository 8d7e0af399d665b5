package algorithm

// others is the bytes of n that are not the own block's, where all blocks have the same length.
func others(size, n int) float64 { return float64(n) * float64(size-1) / float64(size) }

// all is the time of an exchange of n bytes, the own block's among them, with all other ranks at once.
func (m Machine) all(size, n int) float64 {
	if size == 1 {
		return 0
	}
	return m.posted(size-1) + others(size, n)*m.Beta
}

// copied is the time to copy n bytes for the order's sake. Memory sets the pace of
// a copy as it does that of a reduction, so a byte is taken to cost the same.
func (m Machine) copied(size int, n float64) float64 {
	if size == 1 {
		return 0
	}
	return n * m.Gamma
}
