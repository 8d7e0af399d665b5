package nn

import "ddpbatch/trainer/nn/internal/block"

// crowded is a number of values: of rows that begin a multiple of it apart, what lies one below the other has so few places in the
// cache that it does not stay there. Images of 32 x 32 are such rows.
const crowded = 256

// uncrowded returns n or little more, in whole lines of the cache, an odd number of them.
func uncrowded(n int) int {
	const line = 16 // values
	return ((n+line-1)/line | 1) * line
}

// gather fills columns with the patches of n samples from first on.
func (l *Conv2d) gather(first, n int) {
	for i := range n {
		l.patches.split(l.planes, l.x.Row(first+i))
		l.patches.gather(l.columns.Data[i*l.out.plane():], l.planes, l.columns.Cols)
	}
}

// grouped is where a product finds the samples of m, the output or its gradient, from first on: a row for each channel, sample by sample.
func (l *Conv2d) grouped(m Matrix, first int) view {
	if l.direct {
		return view{m.Row(first), l.out.plane()}
	}
	return whole(l.joined)
}

// join copies n samples of m from first on to where grouped says.
func (l *Conv2d) join(m Matrix, first, n int) {
	for i := 0; i < n && !l.direct; i++ {
		row, joined, size := l.sample(m, first, i)
		block.Copy(joined, row, size)
	}
}

// part is join backwards.
func (l *Conv2d) part(m Matrix, first, n int) {
	for i := 0; i < n && !l.direct; i++ {
		row, joined, size := l.sample(m, first, i)
		block.Copy(row, joined, size)
	}
}

// sample returns the two places of the i-th sample of a group that is not direct.
func (l *Conv2d) sample(m Matrix, first, i int) (row, joined block.View, size block.Size) {
	plane := l.out.plane()
	return block.View{Data: m.Row(first + i), Pitch: plane}, block.View{Data: l.joined.Data[i*plane:], Pitch: l.joined.Cols},
		block.Size{Rows: l.out.Channels, Width: plane}
}
