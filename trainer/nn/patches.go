package nn

import "ddpbatch/trainer/nn/internal/block"

// Image is the geometry of a row that holds an image: Channels planes of Height x Width values, one plane after the
// other, each row by row (PyTorch's NCHW, where N is the matrix's rows).
type Image struct{ Channels, Height, Width int }

// Size returns the number of values.
func (i Image) Size() int { return i.Channels * i.Height * i.Width }

func (i Image) plane() int { return i.Height * i.Width }

func (i Image) check() {
	if i.Channels < 1 || i.Height < 1 || i.Width < 1 {
		panic("nn: an image needs at least one channel, row and column")
	}
}

// slidingWindow is a square that moves over an image with padding on every side.
type slidingWindow struct{ kernel, stride, padding int }

// over returns the image, with the given number of channels, that has one value for each position of the window. As in PyTorch, a remainder
// at the lower and the right edge is not covered.
func (w slidingWindow) over(in Image, channels int) Image {
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
func (w slidingWindow) at(in Image, i, j int) area {
	row, col := i*w.stride-w.padding, j*w.stride-w.padding
	return area{row, col, max(row, 0), min(row+w.kernel, in.Height), max(col, 0), min(col+w.kernel, in.Width)}
}

// patches rearranges images so that a convolution is a matrix product (im2col).
//
// A channel of an image is first split by the stride: for each phase (a, b), a plane holds the padded channel's values at rows
// a, a+stride, ... and columns b, b+stride, .... In a plane, the values that one element of the kernel is multiplied by are a block
// as large as the output: for the kernel's element (y, x), a block of the plane of phase (y mod stride, x mod stride) at a fixed position.
type patches struct {
	slidingWindow
	in, out Image // out.Channels is not used
	pitch   int   // values from one row of a plane to the next
	planes  int   // values in all planes of a channel
	taps    []int // for each element of the kernel, where its block starts in the planes of a channel
	phases  []phase
}

// phase is the part of a plane that comes from the image: a block of values stride apart in both directions.
type phase struct {
	image, plane int // where the block starts in a channel and in its planes
	size         block.Size
}

func newPatches(in Image, w slidingWindow) *patches {
	s := &patches{slidingWindow: w, in: in, out: w.over(in, 1)}
	reach := (w.kernel - 1) / w.stride // how far a window goes beyond its first row and column in a plane
	s.pitch = s.out.Width + reach
	height := s.out.Height + reach
	phases := min(w.kernel, w.stride)
	s.planes = phases * phases * height * s.pitch
	for y := range w.kernel {
		for x := range w.kernel {
			plane := y%w.stride*phases + x%w.stride
			s.taps = append(s.taps, (plane*height+y/w.stride)*s.pitch+x/w.stride)
		}
	}
	for a := range phases {
		rows := w.meet(a, in.Height, height)
		for b := range phases {
			columns := w.meet(b, in.Width, s.pitch)
			if rows.count > 0 && columns.count > 0 {
				s.phases = append(s.phases, phase{
					image: rows.image*in.Width + columns.image,
					plane: ((a*phases+b)*height+rows.plane)*s.pitch + columns.plane,
					size:  block.Size{Rows: rows.count, Width: columns.count},
				})
			}
		}
	}
	return s
}

// run is a part of the rows or columns of an image: count of them, stride apart in the image and consecutive in a plane.
type run struct{ image, plane, count int }

// meet returns which of an image's rows, or columns, the planes of a phase contain; the sizes are those of the image and of a plane.
func (w slidingWindow) meet(phase, image, plane int) run {
	r := run{plane: max(0, w.padding-phase+w.stride-1) / w.stride} // what comes before is padding
	r.image = r.plane*w.stride + phase - w.padding
	if r.image < image {
		r.count = min((image-r.image-1)/w.stride+1, plane-r.plane)
	}
	return r
}

// depth returns the number of values that a window covers, in all channels.
func (s *patches) depth() int { return s.in.Channels * len(s.taps) }

// split copies an image into its planes, and leaves the padding in them unchanged.
func (s *patches) split(planes, image []float32) {
	for ; len(image) > 0; image, planes = image[s.in.plane():], planes[s.planes:] {
		for _, p := range s.phases {
			if s.stride == 1 {
				block.Copy(block.View{Data: planes[p.plane:], Pitch: s.pitch}, block.View{Data: image[p.image:], Pitch: s.in.Width}, p.size)
				continue
			}
			for i := range p.size.Rows {
				src := image[p.image+i*s.stride*s.in.Width:]
				for j := range p.size.Width {
					planes[p.plane+i*s.pitch+j] = src[j*s.stride]
				}
			}
		}
	}
}

// merge is the inverse of split. Values that no window covers become 0.
func (s *patches) merge(image, planes []float32) {
	if s.stride > 1 {
		clear(image)
	}
	for ; len(image) > 0; image, planes = image[s.in.plane():], planes[s.planes:] {
		for _, p := range s.phases {
			if s.stride == 1 {
				block.Copy(block.View{Data: image[p.image:], Pitch: s.in.Width}, block.View{Data: planes[p.plane:], Pitch: s.pitch}, p.size)
				continue
			}
			for i := range p.size.Rows {
				dst := image[p.image+i*s.stride*s.in.Width:]
				for j := range p.size.Width {
					dst[j*s.stride] = planes[p.plane+i*s.pitch+j]
				}
			}
		}
	}
}

// gather writes the blocks of an image, one for each channel and element of the kernel, at a distance of pitch values in dst.
func (s *patches) gather(dst, planes []float32, pitch int) {
	row := 0
	for c := range s.in.Channels {
		for _, tap := range s.taps {
			block.Copy(block.View{Data: dst[row*pitch:], Pitch: s.out.Width},
				block.View{Data: planes[c*s.planes+tap:], Pitch: s.pitch}, block.Size{Rows: s.out.Height, Width: s.out.Width})
			row++
		}
	}
}

// scatter is the inverse of gather: it adds the blocks to planes.
func (s *patches) scatter(planes, src []float32, pitch int) {
	row := 0
	for c := range s.in.Channels {
		for _, tap := range s.taps {
			block.Add(block.View{Data: planes[c*s.planes+tap:], Pitch: s.pitch},
				block.View{Data: src[row*pitch:], Pitch: s.out.Width}, block.Size{Rows: s.out.Height, Width: s.out.Width})
			row++
		}
	}
}
