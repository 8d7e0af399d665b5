package halve

func plainMax(y []float32, from []uint8, x []float32, width int, floor float32, element uint8) {
	for len(y) > 0 {
		above, below := x[:2*width], x[2*width:4*width]
		for j := range width {
			best, at := floor, element
			if v := above[2*j]; v > best || v != v {
				best, at = v, 0
			}
			if v := above[2*j+1]; v > best || v != v {
				best, at = v, 1
			}
			if v := below[2*j]; v > best || v != v {
				best, at = v, 2
			}
			if v := below[2*j+1]; v > best || v != v {
				best, at = v, 3
			}
			y[j], from[j] = best, at
		}
		y, from, x = y[width:], from[width:], x[4*width:]
	}
}

func plainSpread(dx []float32, from []uint8, dy []float32, width int) {
	clear(dx)
	for i, v := range dy {
		if at := int(from[i]); at < 4 {
			dx[i/width*4*width+at/2*2*width+i%width*2+at%2] = v
		}
	}
}
