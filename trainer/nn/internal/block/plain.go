package block

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
