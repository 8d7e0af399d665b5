package block

// Size is the number of rows of a block, and the number of values in each row.
type Size struct{ Rows, Width int }

// View is where a block begins in memory, and the distance of its rows in values: its width or more.
type View struct {
	Data  []float32
	Pitch int
}

// Copy copies a block. dst and src must not overlap.
func Copy(dst, src View, n Size) {
	switch fits(dst, src, n); {
	case n.Rows == 0 || n.Width == 0:
	case !assembly || n.Width < 2:
		plainCopy(dst, src, n)
	case n.Width < 4:
		copy2(&dst.Data[0], &src.Data[0], n.Rows, n.Width, dst.Pitch, src.Pitch)
	case n.Width < 8:
		copy4(&dst.Data[0], &src.Data[0], n.Rows, n.Width, dst.Pitch, src.Pitch)
	default:
		copy8(&dst.Data[0], &src.Data[0], n.Rows, n.Width, dst.Pitch, src.Pitch)
	}
}

// Add adds the values of src to those of dst, which must not overlap.
func Add(dst, src View, n Size) {
	switch fits(dst, src, n); {
	case n.Rows == 0 || n.Width == 0:
	case !assembly || n.Width < 2:
		plainAdd(dst, src, n)
	case n.Width < 4:
		add2(&dst.Data[0], &src.Data[0], n.Rows, n.Width, dst.Pitch, src.Pitch)
	case n.Width < 8:
		add4(&dst.Data[0], &src.Data[0], n.Rows, n.Width, dst.Pitch, src.Pitch)
	default:
		add8(&dst.Data[0], &src.Data[0], n.Rows, n.Width, dst.Pitch, src.Pitch)
	}
}

func fits(dst, src View, n Size) {
	if n.Rows < 0 || n.Width < 0 || dst.Pitch < n.Width || src.Pitch < n.Width {
		panic("block: rows overlap, or a size is negative")
	}
	if n.Rows > 0 && (len(dst.Data) < (n.Rows-1)*dst.Pitch+n.Width || len(src.Data) < (n.Rows-1)*src.Pitch+n.Width) {
		panic("block: beyond the end of a slice")
	}
}

func plainCopy(dst, src View, n Size) {
	for i := range n.Rows {
		copy(dst.Data[i*dst.Pitch:][:n.Width], src.Data[i*src.Pitch:])
	}
}

func plainAdd(dst, src View, n Size) {
	for i := range n.Rows {
		row := dst.Data[i*dst.Pitch:][:n.Width]
		for j, v := range src.Data[i*src.Pitch:][:n.Width] {
			row[j] += v
		}
	}
}
