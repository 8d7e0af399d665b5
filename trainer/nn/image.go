package nn

// Image is the geometry of a row that holds an image: Channels planes of Height x Width values, one plane after the
// other, each row by row (PyTorch's NCHW, where N is the matrix's rows).
type Image struct{ Channels, Height, Width int }

// Size is the number of values.
func (i Image) Size() int { return i.Channels * i.Height * i.Width }

func (i Image) plane() int { return i.Height * i.Width }

func (i Image) check() {
	if i.Channels < 1 || i.Height < 1 || i.Width < 1 {
		panic("nn: an image needs at least one channel, row and column")
	}
}
