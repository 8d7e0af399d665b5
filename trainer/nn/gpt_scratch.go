package nn

// gptScratch is memory for gradients that live from the Backward that makes them to the next one, which belongs to another kind of module,
// or not even as long. All layers of a GPT share it: between two linear layers, and between two attentions, there is always a module
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

// linear returns a linear layer with weights from N(0, deviation²) and the bias, if any, 0.
func (s *gptScratch) linear(in, out int, bias bool, deviation float64, src Source) *Linear {
	l := newLinear(in, out, bias)
	l.dx = &s.dx
	normal(l.weight.Value, deviation, src)
	return l
}
