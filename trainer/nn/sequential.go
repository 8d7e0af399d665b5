package nn

import (
	"strconv"

	"ddpbatch/trainer/internal/vec"
)

// Sequential passes the output of each module to the next.
type Sequential struct {
	modules []Module
	names   []string
	params  []*Param
	buffers []*Buffer
}

// Child is a module and its name in another module.
type Child struct {
	Name   string
	Module Module
}

// NewSequential takes ownership of the modules. It puts the index of each before the names of its
// parameters, as torch.nn.Sequential does: "0.weight", "2.bias".
func NewSequential(modules ...Module) *Sequential {
	children := make([]Child, len(modules))
	for i, m := range modules {
		children[i] = Child{strconv.Itoa(i), m}
	}
	return NewNamed(children...)
}

// NewNamed is NewSequential with the caller's names, like an OrderedDict passed to torch.nn.Sequential: "head.weight". A parameter that
// several children share has its name in the first of them, as in PyTorch's named_parameters.
func NewNamed(children ...Child) *Sequential {
	s := new(Sequential)
	named := map[*string]bool{}
	for _, c := range children {
		prefix := func(name *string) {
			if !named[name] {
				named[name], *name = true, c.Name+"."+*name
			}
		}
		for _, p := range c.Module.Params() {
			prefix(&p.Name)
		}
		for _, b := range c.Module.Buffers() {
			prefix(&b.Name)
		}
		s.append(c)
	}
	return s
}

func (s *Sequential) append(c Child) {
	s.modules, s.names = append(s.modules, c.Module), append(s.names, c.Name)
	s.params = append(s.params, c.Module.Params()...)
	s.buffers = append(s.buffers, c.Module.Buffers()...)
}

// Len returns the number of modules.
func (s *Sequential) Len() int { return len(s.modules) }

// Child returns the i-th module and its name.
func (s *Sequential) Child(i int) Child { return Child{s.names[i], s.modules[i]} }

// Slice returns the modules from first to before end as another Sequential, with the names that they have in s.
func (s *Sequential) Slice(first, end int) *Sequential {
	part := new(Sequential)
	for i := first; i < end; i++ {
		part.append(s.Child(i))
	}
	return part
}

// Params returns the parameters of all modules in order, with a shared one at each of its uses.
func (s *Sequential) Params() []*Param { return s.params }

// Buffers returns the buffers of all modules in order, with a shared one at each of its uses.
func (s *Sequential) Buffers() []*Buffer { return s.buffers }

// Forward applies the modules in order.
func (s *Sequential) Forward(p *Pass, x Matrix) Matrix {
	for _, m := range s.modules {
		x = m.Forward(p, x)
	}
	return x
}

// Backward runs the modules from the last to the first. Only the first may skip
// the gradient of its input.
func (s *Sequential) Backward(p *Pass, dy Matrix, input bool) Matrix {
	if len(s.modules) == 0 && !input {
		return Matrix{}
	}
	for i := len(s.modules) - 1; i >= 0; i-- {
		dy = s.modules[i].Backward(p, dy, input || i > 0)
	}
	return dy
}

// Residual is y = x + f(x) (He, Zhang, Ren, Sun: Deep Residual Learning, arXiv 1512.03385). Its parameters are those
// of f, with their names in f.
type Residual struct {
	f     Module
	last  *Linear     // the layer that f ends with, whose product is added to x; nil: f ends with another module
	front *Sequential // f without last; nil if last is nil
	y     Matrix      // without last: the output; after Backward the input's gradient: the output is not read any more by then
}

// NewResidual takes ownership of f, which must keep the shape of its input.
func NewResidual(f Module) *Residual {
	r := &Residual{f: f}
	if s, ok := f.(*Sequential); ok && s.Len() > 1 {
		if last, ok := s.Child(s.Len() - 1).Module.(*Linear); ok {
			r.front, r.last = s.Slice(0, s.Len()-1), last
		}
	}
	return r
}

// Params returns the parameters of f.
func (r *Residual) Params() []*Param { return r.f.Params() }

// Buffers returns the buffers of f.
func (r *Residual) Buffers() []*Buffer { return r.f.Buffers() }

// Forward returns x + f(x).
func (r *Residual) Forward(p *Pass, x Matrix) Matrix {
	if r.last != nil {
		return r.last.forwardOnto(p, r.front.Forward(p, x), x)
	}
	fx := r.f.Forward(p, x)
	sameShape(fx, x)
	r.y.resize(x.Rows, x.Cols)
	vec.AddTo(r.y.Data, x.Data, fx.Data)
	return r.y
}

// Backward returns dy plus f's gradient of its input.
func (r *Residual) Backward(p *Pass, dy Matrix, input bool) Matrix {
	dx := r.f.Backward(p, dy, input)
	if !input {
		return Matrix{}
	}
	sameShape(dx, dy)
	r.y.resize(dy.Rows, dy.Cols)
	vec.AddTo(r.y.Data, dy.Data, dx.Data)
	return r.y
}
