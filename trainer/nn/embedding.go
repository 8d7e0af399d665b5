package nn

import "ddpbatch/trainer/internal/vec"

// Embedding turns symbols into rows: y = token[symbol] + position[place in the sequence]. Its parameters are "token.weight" [symbols, width]
// and "position.weight" [context, width], those of two torch.nn.Embedding of these names.
type Embedding struct {
	token, position *Param
	params          []*Param
	x               Matrix // what the last Forward was given
	y, dx           Matrix
}

// NewEmbedding returns an embedding of sequences of context symbols below symbols. Both weights are drawn from
// N(0, 1), as torch.nn.Embedding does.
func NewEmbedding(symbols, context, width int, src Source) *Embedding {
	e := newEmbedding(symbols, context, width)
	normal(e.token.Value, 1, src)
	normal(e.position.Value, 1, src)
	return e
}

func newEmbedding(symbols, context, width int) *Embedding {
	if symbols < 1 || context < 1 || width < 1 {
		panic("nn: an embedding needs at least one symbol, one place and one column")
	}
	e := &Embedding{token: newParam("token.weight", symbols, width), position: newParam("position.weight", context, width)}
	e.params = []*Param{e.token, e.position}
	return e
}

// Params returns the weights of the tokens and of the positions.
func (e *Embedding) Params() []*Param { return e.params }

// Buffers returns none.
func (*Embedding) Buffers() []*Buffer { return nil }

// Forward takes a sequence in each row, its symbols as whole numbers below symbols, and returns a row
// for each symbol, sequence by sequence.
func (e *Embedding) Forward(_ *Pass, x Matrix) Matrix {
	width := e.token.Shape[1]
	if x.Cols != e.position.Shape[0] {
		panic("nn: sequences of an embedding have the wrong length")
	}
	e.x = x
	e.y.resize(len(x.Data), width)
	for i, symbol := range x.Data {
		vec.AddTo(e.y.Row(i), e.tokenRow(e.token.Value, symbol), rowOf(e.position.Value, i%x.Cols, width))
	}
	return e.y
}

// Backward adds each row of dy to the gradients of its symbol and of its place. Symbols have no gradient, so
// where one is asked for, it is zero.
func (e *Embedding) Backward(p *Pass, dy Matrix, input bool) Matrix {
	sameShape(dy, e.y)
	width := e.token.Shape[1]
	for i := range dy.Rows {
		vec.Add(rowOf(e.position.Grad, i%e.x.Cols, width), dy.Row(i))
	}
	p.Done(e.position)
	for i, symbol := range e.x.Data {
		vec.Add(e.tokenRow(e.token.Grad, symbol), dy.Row(i))
	}
	p.Done(e.token)
	if !input {
		return Matrix{}
	}
	e.dx.resize(e.x.Rows, e.x.Cols)
	clear(e.dx.Data)
	return e.dx
}

// tokenRow returns the symbol's row of data. NaN is out of range too.
func (e *Embedding) tokenRow(data []float32, symbol float32) []float32 {
	if !(symbol >= 0 && symbol < float32(e.token.Shape[0])) {
		panic("nn: symbol out of range")
	}
	return rowOf(data, int(symbol), e.token.Shape[1])
}

func rowOf(data []float32, i, width int) []float32 { return data[i*width : (i+1)*width] }
