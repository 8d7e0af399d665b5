package data

import (
	"fmt"
	"math"

	"ddpbatch/trainer/internal/mt19937"
)

// SamplerConfig says what is split, over whom, and how.
type SamplerConfig struct {
	Rows        int // at least 1, below 2^32
	World, Rank int // number of ranks, and which of them this is
	Seed        uint64
	Shuffle     bool // by a permutation of seed + epoch; otherwise rows stay in order
	DropLast    bool // leave out the rows that do not divide evenly, instead of repeating the first ones
}

// DistributedSampler deals the rows of a data set out to ranks: rank r gets every World-th
// row from the r-th on, of an order that all ranks share, and all get equally many. It is
// torch.utils.data.DistributedSampler index for index.
//
// The order is a function of the settings and the epoch alone: no random state lives on
// between epochs, and none needs to be saved.
type DistributedSampler struct {
	cfg     SamplerConfig
	random  *mt19937.Generator
	order   []int // all rows, permuted
	indices []int // this rank's
}

// NewDistributedSampler returns a sampler at epoch 0.
func NewDistributedSampler(cfg SamplerConfig) (*DistributedSampler, error) {
	if cfg.Rows < 1 || uint64(cfg.Rows) > math.MaxUint32 {
		return nil, fmt.Errorf("sampler: %d rows, want 1 to %d", cfg.Rows, uint32(math.MaxUint32))
	}
	if cfg.World < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.World {
		return nil, fmt.Errorf("sampler: rank %d of %d does not exist", cfg.Rank, cfg.World)
	}
	each := cfg.Rows / cfg.World
	if !cfg.DropLast && cfg.Rows%cfg.World != 0 {
		each++
	}
	s := &DistributedSampler{
		cfg:     cfg,
		random:  mt19937.New(cfg.Seed),
		order:   make([]int, cfg.Rows),
		indices: make([]int, each),
	}
	s.SetEpoch(0)
	return s, nil
}

// SetEpoch computes the order of an epoch, in any sequence of epochs. Every rank calls it before
// every epoch; the slice that Indices returned before holds the new order.
func (s *DistributedSampler) SetEpoch(epoch int) {
	for i := range s.order {
		s.order[i] = i
	}
	if s.cfg.Shuffle {
		s.random.Seed(s.cfg.Seed + uint64(epoch))
		shuffle(s.order, s.random)
	}
	for i := range s.indices {
		// Beyond the last row the order starts again: that is the padding.
		s.indices[i] = s.order[(s.cfg.Rank+i*s.cfg.World)%len(s.order)]
	}
}

// shuffle makes order, the numbers from 0 on, torch.randperm's permutation: Fisher-Yates from
// the front, with the remainder of a 32-bit number and its slight bias.
func shuffle(order []int, random *mt19937.Generator) {
	for i := range len(order) - 1 {
		j := i + int(random.Uint32()%uint32(len(order)-i))
		order[i], order[j] = order[j], order[i]
	}
}

// Len is how many rows each rank gets in an epoch.
func (s *DistributedSampler) Len() int { return len(s.indices) }

// Indices returns this rank's rows in the order of the epoch. The slice is the
// sampler's own, and changes with SetEpoch.
func (s *DistributedSampler) Indices() []int { return s.indices }
