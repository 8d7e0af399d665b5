package data

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext/prng"
)

// Remainder says what becomes of the rows that do not divide evenly over the ranks.
type Remainder string

const (
	// Pad repeats the first rows of the epoch's order, so that all ranks get equally many. It is PyTorch's default,
	// and what "" means.
	Pad Remainder = "pad"
	// Drop leaves the last rows out (PyTorch's drop_last).
	Drop Remainder = "drop"
	// Uneven deals every row out once; the last ranks may get one fewer.
	Uneven Remainder = "uneven"
)

// SamplerConfig says what is split, over whom, and how.
type SamplerConfig struct {
	Rows        int // at least 1, below 2^32
	World, Rank int // number of ranks, and which of them this is
	Seed        uint64
	Shuffle     bool // by a permutation of seed + epoch; otherwise rows stay in order
	Remainder   Remainder
}

// DistributedSampler deals the rows of a data set out to ranks: rank r gets every World-th
// row from the r-th on, of an order that all ranks share. With Pad and Drop it is
// torch.utils.data.DistributedSampler index for index.
//
// The order is a function of seed and epoch alone, not of the ranks: no random state lives on between epochs, and none
// needs to be saved. When every rank has taken n rows, all together have taken the first n x World of the
// order: so an epoch that was begun by some number of ranks can be ended by another.
type DistributedSampler struct {
	cfg     SamplerConfig
	random  *prng.MT19937
	order   []uint32 // all rows, permuted; nil without Shuffle
	indices []int    // this rank's
	total   int
}

// NewDistributedSampler returns a sampler at the start of epoch 0.
func NewDistributedSampler(cfg SamplerConfig) (*DistributedSampler, error) {
	if cfg.Rows < 1 || uint64(cfg.Rows) > math.MaxUint32 {
		return nil, fmt.Errorf("sampler: %d rows, want 1 to %d", cfg.Rows, uint32(math.MaxUint32))
	}
	if cfg.World < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.World {
		return nil, fmt.Errorf("sampler: rank %d of %d does not exist", cfg.Rank, cfg.World)
	}
	switch cfg.Remainder {
	case "":
		cfg.Remainder = Pad
	case Pad, Drop, Uneven:
	default:
		return nil, fmt.Errorf("sampler: remainder is %q, want %q, %q or %q", cfg.Remainder, Pad, Drop, Uneven)
	}
	s := &DistributedSampler{
		cfg:     cfg,
		random:  prng.NewMT19937(),
		indices: make([]int, 0, (cfg.Rows-1)/cfg.World+1),
	}
	if cfg.Shuffle {
		s.order = make([]uint32, cfg.Rows)
	}
	s.SetEpoch(0, 0)
	return s, nil
}

// SetEpoch computes the order of an epoch, in any sequence of epochs, without the first rows of it, which
// ranks have had before: 0, or to go on in the middle of an epoch the rows that all ranks together had, whatever
// their number was. Every rank calls it before every epoch; the slice that Indices returned
// before holds the new order.
func (s *DistributedSampler) SetEpoch(epoch, first int) {
	if first < 0 {
		panic("data: negative first row of an epoch")
	}
	if s.cfg.Shuffle {
		for i := range s.order {
			s.order[i] = uint32(i)
		}
		s.random.Seed(s.cfg.Seed + uint64(epoch))
		shuffle(s.order, s.random)
	}
	left := max(0, s.cfg.Rows-first) // none, too, after the padding of an epoch that is over
	world := s.cfg.World
	switch s.cfg.Remainder {
	case Pad:
		s.total = (left + world - 1) / world * world
	case Drop:
		s.total = left / world * world
	case Uneven:
		s.total = left
	}
	s.indices = s.indices[:0]
	for i := s.cfg.Rank; i < s.total; i += world {
		s.indices = append(s.indices, s.row(first+i))
	}
}

// row is the one at a position of the order. Beyond the last the order starts again: that is the padding.
func (s *DistributedSampler) row(position int) int {
	position %= s.cfg.Rows
	if s.cfg.Shuffle {
		return int(s.order[position])
	}
	return position
}

// shuffle makes order, the numbers from 0 on, torch.randperm's permutation: Fisher-Yates from
// the front, with the remainder of a 32-bit number and its slight bias.
func shuffle(order []uint32, random *prng.MT19937) {
	for i := range len(order) - 1 {
		j := i + int(random.Uint32()%uint32(len(order)-i))
		order[i], order[j] = order[j], order[i]
	}
}

// Len is how many rows this rank gets in what SetEpoch set.
func (s *DistributedSampler) Len() int { return len(s.indices) }

// Total is how many rows all ranks together get in what SetEpoch set, repeated ones among them.
func (s *DistributedSampler) Total() int { return s.total }

// Indices returns this rank's rows in the order of the epoch. The slice is the
// sampler's own, and changes with SetEpoch.
func (s *DistributedSampler) Indices() []int { return s.indices }
