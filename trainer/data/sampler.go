package data

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext/prng"
)

// Remainder says what happens to rows that do not divide evenly over the ranks.
type Remainder string

const (
	// Pad repeats the first rows of the epoch's order, so that all ranks get the same number. It is PyTorch's default,
	// and the meaning of "".
	Pad Remainder = "pad"
	// Drop leaves out the last rows (PyTorch's drop_last).
	Drop Remainder = "drop"
	// Uneven gives out every row once; the last ranks may get one fewer.
	Uneven Remainder = "uneven"
)

// SamplerConfig configures a DistributedSampler.
type SamplerConfig struct {
	Rows        int // at least 1, below 2^32
	World, Rank int // the number of ranks, and this rank
	Seed        uint64
	Shuffle     bool // permute the rows by seed + epoch; otherwise they stay in order
	Remainder   Remainder
}

// DistributedSampler distributes the rows of a data set over ranks: rank r gets every World-th
// row, beginning with the r-th, of an order that all ranks share. With Pad and Drop it is
// torch.utils.data.DistributedSampler index for index.
//
// The order depends only on seed and epoch, and not on the ranks: there is no random state between epochs that would have
// to be saved. When every rank has taken n rows, all together have taken the first n x World of the
// order, so an epoch that was begun by some number of ranks can be completed by another.
type DistributedSampler struct {
	cfg     SamplerConfig
	random  *prng.MT19937
	order   []uint32 // all rows, permuted; nil unless Shuffle
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

// SetEpoch computes the order of an epoch, without its first rows, which
// ranks have had before: 0, or, to continue in the middle of an epoch, the number of rows that all ranks together have had, whatever
// their number was. Every rank must call it before every epoch, in any sequence of epochs; the slice that Indices has returned
// before holds the new order afterward.
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
	left := max(0, s.cfg.Rows-first) // also 0 after the padding of a complete epoch
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

// row returns the row at a position of the order. After the last position the order starts again: that is the padding.
func (s *DistributedSampler) row(position int) int {
	position %= s.cfg.Rows
	if s.cfg.Shuffle {
		return int(s.order[position])
	}
	return position
}

// shuffle permutes order, the numbers from 0, like torch.randperm: Fisher-Yates from
// the front, with the remainder of a 32-bit number and its slight bias.
func shuffle(order []uint32, random *prng.MT19937) {
	for i := range len(order) - 1 {
		j := i + int(random.Uint32()%uint32(len(order)-i))
		order[i], order[j] = order[j], order[i]
	}
}

// Len returns how many rows this rank has since SetEpoch.
func (s *DistributedSampler) Len() int { return len(s.indices) }

// Total returns how many rows all ranks together have since SetEpoch, including repeated ones.
func (s *DistributedSampler) Total() int { return s.total }

// Indices returns this rank's rows in the order of the epoch. The sampler owns the slice, and
// SetEpoch changes it.
func (s *DistributedSampler) Indices() []int { return s.indices }
