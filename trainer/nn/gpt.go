package nn

import (
	"math"
	"strconv"
)

// GPTConfig is the shape of a GPT.
type GPTConfig struct {
	Layers  int     // blocks of attention and feed-forward layers
	Heads   int     // of each attention
	Width   int     // columns of the activations between blocks; a multiple of Heads
	Context int     // symbols in a sequence
	Symbols int     // that there are
	Dropout float64 // of the embedding and of what each residual branch adds; 0: none
}

// gptDeviation is that of GPT-2's initial weights.
const gptDeviation = 0.02

// NewGPT returns a decoder-only transformer as GPT-2 is (Radford and others: Language Models are Unsupervised Multitask Learners), without shared
// weights: "embed", "blocks.0" and so on, "norm" and "head". A block is
//
//	x + attn.proj(attention(attn.qkv(ln1(x)))), then x + mlp.proj(gelu(mlp.fc(ln2(x))))
//
// with 4 Width columns inside the second. Linear layers have a bias but for the head. The input has a sequence of Context symbols in each row,
// the output a row of Symbols logits for each symbol: those of the next one.
//
// Weights are drawn from N(0, 0.02²), those of attn.proj and mlp.proj from N(0, 0.02² / (2 Layers)), in the order of Params; biases are 0.
//
// The result is flat, a module for the embedding, each block, the last norm and the head, so that it can be cut for a pipeline. All its
// layers share the memory of gradients that only live from one module to the one before it, so parts of one model must not run
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
	modules = append(modules, Child{"norm", NewLayerNorm(cfg.Width)}, Child{"head", shared.linear(cfg.Width, cfg.Symbols, false, gptDeviation, src)})
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

// dropout puts a dropout with its own stream behind m, if there is to be one.
func (cfg GPTConfig) dropout(stream int, m Module) Module {
	if cfg.Dropout == 0 {
		return m
	}
	return join(Child{"layers", m}, Child{"dropout", NewDropout(cfg.Dropout, uint64(stream))})
}

// join is NewNamed without a change to the names of parameters.
func join(children ...Child) *Sequential {
	s := new(Sequential)
	for _, c := range children {
		s.append(c)
	}
	return s
}
