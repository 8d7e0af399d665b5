package nn

import (
	"math"
	"strconv"

	"ddpbatch/trainer/internal/vec"
)

// GPTConfig is the shape of a GPT.
type GPTConfig struct {
	Layers  int     // blocks of attention and feed-forward layers
	Heads   int     // of each attention
	Width   int     // columns of the activations between blocks; a multiple of Heads
	Context int     // symbols in a sequence
	Symbols int     // number of different symbols
	Dropout float64 // of the embedding and of what each residual branch adds; 0: none
}

// gptDeviation is the standard deviation of GPT-2's initial weights.
const gptDeviation = 0.02

// NewGPT returns a decoder-only transformer like GPT-2 (Radford and others: Language Models are Unsupervised Multitask Learners), but
// without shared weights. Its modules are "embed", "blocks.0" and so on, "norm" and "head". A block is
//
//	x + attn.proj(attention(attn.qkv(ln1(x)))), then x + mlp.proj(gelu(mlp.fc(ln2(x))))
//
// with 4 Width columns inside the second part. Linear layers have a bias, except for the head. The input has a sequence of Context symbols
// in each row. The output has a row of Symbols logits for each symbol, which predict the next one.
//
// Weights are drawn from N(0, 0.02²), those of attn.proj and mlp.proj from N(0, 0.02² / (2 Layers)), in the order of Params; biases are 0.
//
// The result is flat, with a module for the embedding, each block, the last norm and the head, so that it can be split for a pipeline. All
// its layers share memory for gradients that are used only between one module and the one before it, so parts of one model must not run
// at the same time.
func NewGPT(cfg GPTConfig, src Source) *Sequential {
	if cfg.Layers < 1 {
		panic("nn: a GPT needs at least one block")
	}
	embed := newEmbedding(cfg.Symbols, cfg.Context, cfg.Width)
	normal(embed.token.Value, gptDeviation, src)
	normal(embed.position.Value, gptDeviation, src)
	modules := []Child{{"embed", cfg.dropout(0, embed)}}
	shared := new(gptScratch)
	for i := range cfg.Layers {
		modules = append(modules, Child{"blocks." + strconv.Itoa(i), cfg.block(i, shared, src)})
	}
	modules = append(modules, Child{"norm", NewLayerNorm(cfg.Width)},
		Child{"head", shared.linear(cfg.Width, cfg.Symbols, false, gptDeviation, src)})
	return NewNamed(modules...)
}

// block returns the i-th block.
func (cfg GPTConfig) block(i int, shared *gptScratch, src Source) Module {
	width := cfg.Width
	branch := gptDeviation / math.Sqrt(2*float64(cfg.Layers))
	attend := NewNamed(
		Child{"ln1", NewLayerNorm(width)},
		Child{"attn.qkv", shared.linear(width, 3*width, true, gptDeviation, src)},
		Child{"attn", shared.attention(width, cfg.Heads, cfg.Context)},
		Child{"attn.proj", shared.linear(width, width, true, branch, src)},
	)
	feed := NewNamed(
		Child{"ln2", NewLayerNorm(width)},
		Child{"mlp.fc", shared.linear(width, 4*width, true, gptDeviation, src)},
		Child{"mlp", NewGELU()},
		Child{"mlp.proj", shared.linear(4*width, width, true, branch, src)},
	)
	return join(
		Child{"attn", NewResidual(cfg.dropout(2*i+1, attend))},
		Child{"mlp", NewResidual(cfg.dropout(2*i+2, feed))},
	)
}

// dropout appends a dropout with its own stream to m, if there is to be one.
func (cfg GPTConfig) dropout(stream int, m Module) Module {
	if cfg.Dropout == 0 {
		return m
	}
	return join(Child{"layers", m}, Child{"dropout", NewDropout(cfg.Dropout, uint64(stream))})
}

// join is NewNamed, but does not change the names of parameters.
func join(children ...Child) *Sequential {
	s := new(Sequential)
	for _, c := range children {
		s.append(c)
	}
	return s
}

// gptScratch is memory for gradients that are used from the Backward that makes them to at most the next one, which belongs to another kind
// of module. All layers of a GPT share it: between two linear layers, and between two attentions, there is always a module
// that writes elsewhere.
type gptScratch struct {
	dx      Matrix // of linear layers
	dqkv    Matrix // of attentions
	dscores Matrix // of one head of an attention
}

// attention returns an attention.
func (s *gptScratch) attention(width, heads, context int) *CausalAttention {
	a := NewCausalAttention(width, heads, context)
	a.dqkv, a.dscores = &s.dqkv, &s.dscores
	return a
}

// linear returns a linear layer with weights from N(0, deviation²). Its bias, if any, is 0.
func (s *gptScratch) linear(in, out int, bias bool, deviation float64, src Source) *Linear {
	l := newLinear(in, out, bias)
	l.dx = &s.dx
	normal(l.weight.Value, deviation, src)
	return l
}

// Embedding turns symbols into rows: y = token[symbol] + position[index in the sequence]. Its parameters are "token.weight" [symbols,
// width] and "position.weight" [context, width], those of two torch.nn.Embedding of these names.
type Embedding struct {
	parameters
	token, position *Param
	x               Matrix // the input of the last Forward
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
		panic("nn: an embedding needs at least one symbol, one position and one column")
	}
	e := &Embedding{token: newParam("token.weight", symbols, width), position: newParam("position.weight", context, width)}
	e.parameters = parameters{e.token, e.position}
	return e
}

// Forward takes a sequence in each row, with its symbols as whole numbers less than symbols, and returns a row
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

// Backward adds each row of dy to the gradients of its symbol and of its position. Symbols have no gradient: if
// the input's gradient is wanted, it is zero.
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

// tokenRow returns the symbol's row of data. NaN is out of range, too.
func (e *Embedding) tokenRow(data []float32, symbol float32) []float32 {
	if !(symbol >= 0 && symbol < float32(e.token.Shape[0])) {
		panic("nn: symbol out of range")
	}
	return rowOf(data, int(symbol), e.token.Shape[1])
}

func rowOf(data []float32, i, width int) []float32 { return data[i*width : (i+1)*width] }
