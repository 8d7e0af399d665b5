package nn

import "ddpbatch/trainer/internal/vec"

// patches lays images out so that a convolution is a matrix product (im2col), by copying long runs only.
//
// A channel of an image is first split by the stride: for each phase (a, b), a plane holds the padded channel's values at rows
// a, a+stride, ... and columns b, b+stride, .... In there, what one element of the kernel meets as the window slides is
// a run of consecutive values: the kernel's element (y, x) meets the plane of phase (y mod stride, x mod stride) from a
// fixed position on. A run has span values, for one row of windows after the other. Between two rows lie as many values as the
// pitch of the plane is larger than the output's width: they belong to no window and are ignored, or 0 in gradients.
type patches struct {
	window
	in, out   Image // out.Channels is not used
	pitch     int   // values from one row of a plane to the next
	planes    int   // values in all planes of a channel
	span      int   // values from the first window to the last
	taps      []int // for each element of the kernel, where its run starts in the planes of a channel
	stretches []stretch
}

// stretch is a part of a row of a channel: count values, stride apart in the image, in succession in a plane.
type stretch struct{ image, plane, count int }

func newPatches(in Image, w window) *patches {
	s := &patches{window: w, in: in, out: w.over(in, 1)}
	reach := (w.kernel - 1) / w.stride // how far a window goes beyond its first row and column in a plane
	s.pitch = s.out.Width + reach
	if w.stride == 1 {
		s.pitch = max(in.Width+w.padding, s.out.Width) // the padding right of a row is also that left of the next
	}
	plane := (s.out.Height+reach-1)*s.pitch + s.out.Width + reach
	phases := min(w.kernel, w.stride)
	s.planes = phases * phases * plane
	s.span = (s.out.Height-1)*s.pitch + s.out.Width
	for y := range w.kernel {
		for x := range w.kernel {
			phase := y%w.stride*phases + x%w.stride
			s.taps = append(s.taps, phase*plane+y/w.stride*s.pitch+x/w.stride)
		}
	}
	for phase := range phases * phases {
		s.addStretches(phase/phases, phase%phases, phase*plane, reach)
	}
	return s
}

// depth is the number of values that a window covers, in all channels.
func (s *patches) depth() int { return s.in.Channels * len(s.taps) }

// addStretches adds the rows of the plane of phase (a, b), which begins at start.
func (s *patches) addStretches(a, b, start, reach int) {
	first := max(0, s.padding-b+s.stride-1) / s.stride // the first column that is not padding
	for i := range s.out.Height + reach {
		row := i*s.stride + a - s.padding
		column := first*s.stride + b - s.padding
		if row < 0 || row >= s.in.Height || column >= s.in.Width {
			continue
		}
		count := min((s.in.Width-column-1)/s.stride+1, s.out.Width+reach-first)
		s.stretches = append(s.stretches, stretch{row*s.in.Width + column, start + i*s.pitch + first, count})
	}
}

// split copies an image into its planes, and leaves the padding in them as it is.
func (s *patches) split(planes, image []float32) {
	for ; len(image) > 0; image, planes = image[s.in.plane():], planes[s.planes:] {
		for _, r := range s.stretches {
			dst, src := planes[r.plane:r.plane+r.count], image[r.image:]
			if s.stride == 1 {
				copy(dst, src)
				continue
			}
			for i := range dst {
				dst[i] = src[i*s.stride]
			}
		}
	}
}

// merge is split backwards. What no window covers is 0.
func (s *patches) merge(image, planes []float32) {
	if s.stride > 1 {
		clear(image)
	}
	for ; len(image) > 0; image, planes = image[s.in.plane():], planes[s.planes:] {
		for _, r := range s.stretches {
			src, dst := planes[r.plane:r.plane+r.count], image[r.image:]
			if s.stride == 1 {
				copy(dst, src)
				continue
			}
			for i, v := range src {
				dst[i*s.stride] = v
			}
		}
	}
}

// gather writes the runs of an image, one for each channel and element of the kernel, pitch values apart in dst.
func (s *patches) gather(dst, planes []float32, pitch int) {
	row := 0
	for c := range s.in.Channels {
		for _, tap := range s.taps {
			copy(dst[row*pitch:][:s.span], planes[c*s.planes+tap:])
			row++
		}
	}
}

// scatter is gather backwards: it adds the runs into planes.
func (s *patches) scatter(planes, src []float32, pitch int) {
	row := 0
	for c := range s.in.Channels {
		for _, tap := range s.taps {
			vec.Add(planes[c*s.planes+tap:][:s.span], src[row*pitch:][:s.span])
			row++
		}
	}
}

// compact copies the values of windows out of a run.
func (s *patches) compact(plane, run []float32) {
	for y := range s.out.Height {
		copy(plane[y*s.out.Width:][:s.out.Width], run[y*s.pitch:])
	}
}

// spread is compact backwards. It leaves what lies between rows as it is.
func (s *patches) spread(run, plane []float32) {
	for y := range s.out.Height {
		copy(run[y*s.pitch:][:s.out.Width], plane[y*s.out.Width:])
	}
}
