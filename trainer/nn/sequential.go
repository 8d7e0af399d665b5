package nn

import "strconv"

// Sequential feeds the output of each module to the next.
type Sequential struct {
	modules []Module
	params  []*Param
}

// NewSequential takes the modules over. It puts the index of each before the names of its
// parameters, as torch.nn.Sequential does: "0.weight", "2.bias".
func NewSequential(modules ...Module) *Sequential {
	s := &Sequential{modules: modules}
	for i, m := range modules {
		for _, p := range m.Params() {
			p.Name = strconv.Itoa(i) + "." + p.Name
			s.params = append(s.params, p)
		}
	}
	return s
}

// Params returns the parameters of all modules in order.
func (s *Sequential) Params() []*Param { return s.params }

// Forward applies the modules in order.
func (s *Sequential) Forward(x Matrix) Matrix {
	for _, m := range s.modules {
		x = m.Forward(x)
	}
	return x
}

// Backward goes through the modules from the last to the first. Only the first need not
// compute the gradient of its input.
func (s *Sequential) Backward(dy Matrix, input bool) Matrix {
	for i := len(s.modules) - 1; i >= 0; i-- {
		dy = s.modules[i].Backward(dy, input || i > 0)
	}
	return dy
}
