package trainer

import "ddpbatch/trainer/data"

// cut deals b's rows out to parts, in order, as torch.chunk does: equally many to each, and fewer, or none, to the last. The parts
// are views of b.
func cut(parts []data.Batch, b *data.Batch) {
	each := (b.Rows + len(parts) - 1) / len(parts)
	for i := range parts {
		first := min(i*each, b.Rows)
		end := min(first+each, b.Rows)
		parts[i] = data.Batch{
			Rows: end - first,
			X:    rowsOf(b.X, b.Rows, first, end), Y: rowsOf(b.Y, b.Rows, first, end), Labels: rowsOf(b.Labels, b.Rows, first, end),
		}
	}
}

// rowsOf returns the rows from first to before end of a table of rows.
func rowsOf[T any](table []T, rows, first, end int) []T {
	if rows == 0 {
		return nil
	}
	width := len(table) / rows
	return table[first*width : end*width]
}

// mix makes a seed out of two that differs where either does (the finalizer of SplitMix64).
func mix(a, b uint64) uint64 {
	z := a + 0x9e3779b97f4a7c15*(b+1)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
