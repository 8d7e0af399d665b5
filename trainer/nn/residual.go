package nn

import "ddpbatch/trainer/internal/vec"

// Residual is y = x + f(x) (He, Zhang, Ren, Sun: Deep Residual Learning, arXiv 1512.03385). Its parameters are those
// of f, by their names in f.
type Residual struct {
	f     Module
	last  *Linear     // the layer that f ends in: its product is added onto x; nil: f ends in something else
	front *Sequential // f without last; nil if that is
	y     Matrix      // the output, unless that is last's; after Backward the input's gradient: nobody reads the output any more by then
}

// NewResidual takes f over, which must keep the shape of its input.
func NewResidual(f Module) *Residual {
	r := &Residual{f: f}
	if s, ok := f.(*Sequential); ok && s.Len() > 1 {
		if last, ok := s.Child(s.Len() - 1).Module.(*Linear); ok {
			r.front, r.last = s.Slice(0, s.Len()-1), last
		}
	}
	return r
}

// Params returns those of f.
func (r *Residual) Params() []*Param { return r.f.Params() }

// Buffers returns those of f.
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

// Backward returns dy plus what f makes of it.
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
