package ddp

import (
	"cmp"
	"slices"

	"ddpbatch/trainer/nn"
)

// feedback keeps what compression has left out of the gradients of this rank, to be added to those of the next step (error feedback,
// arXiv 1901.09847): e <- g + e - what was sent of it.
//
// The mean of the residuals over ranks is what the means that were applied so far lack. Ranks of another number that all
// get that mean go on without a loss.
type feedback struct {
	left   [][]float32 // by group, parameter by parameter
	states []State     // views of left, by name
}

// bind keeps residuals for groups of parameters from now on: those of known parameters move, others are zero.
func (f *feedback) bind(groups [][]*nn.Param) {
	before := f.states
	f.left, f.states = make([][]float32, len(groups)), nil
	for i, group := range groups {
		n := 0
		for _, p := range group {
			n += len(p.Grad)
		}
		rest := make([]float32, n)
		f.left[i] = rest
		for _, p := range group {
			s := State{Name: "residual." + p.Name, Shape: p.Shape}
			s.Value, rest = rest[:len(p.Grad):len(p.Grad)], rest[len(p.Grad):]
			if known := slices.IndexFunc(before, func(b State) bool { return b.Name == s.Name }); known >= 0 {
				copy(s.Value, before[known].Value)
			}
			f.states = append(f.states, s)
		}
	}
	slices.SortFunc(f.states, func(a, b State) int { return cmp.Compare(a.Name, b.Name) })
}
