package nn

// window is a square that slides over an image with padding on every side.
type window struct{ kernel, stride, padding int }

// over returns the image, of the given channels, that has one value for each position of the window. What
// is left over at the lower and the right edge is not covered, as in PyTorch.
func (w window) over(in Image, channels int) Image {
	in.check()
	if w.kernel < 1 || w.stride < 1 || w.padding < 0 {
		panic("nn: a window needs a kernel and a stride of at least 1, and no negative padding")
	}
	height, width := in.Height+2*w.padding-w.kernel, in.Width+2*w.padding-w.kernel
	if height < 0 || width < 0 {
		panic("nn: a window is larger than the padded image")
	}
	return Image{Channels: channels, Height: height/w.stride + 1, Width: width/w.stride + 1}
}

// area is one position of a window: its first row and column, which may be padding, and the rows and columns in the image that
// it covers.
type area struct{ row, col, top, bottom, left, right int }

// at returns the area of row i and column j of the output.
func (w window) at(in Image, i, j int) area {
	row, col := i*w.stride-w.padding, j*w.stride-w.padding
	return area{row, col, max(row, 0), min(row+w.kernel, in.Height), max(col, 0), min(col+w.kernel, in.Width)}
}
