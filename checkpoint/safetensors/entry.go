package safetensors

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// entry reads what a header says of a tensor, and checks that its bytes are those of its shape.
func (s *scanner) entry(name string) (Info, error) {
	t := Info{Name: name}
	offsets := make([]uint64, 0, 2)
	seen := make([]string, 0, 3)
	err := s.object(func(key string) (err error) {
		if slices.Contains(seen, key) {
			return s.errorf("%s stands there twice", quoted(key))
		}
		seen = append(seen, key)
		switch key {
		case "dtype":
			t.Type, err = s.str()
		case "shape":
			t.Shape, err = s.shape()
		case "data_offsets":
			err = s.array(func() error {
				n, err := s.number()
				if len(offsets) == 2 || n > math.MaxInt64 {
					return s.errorf("data_offsets are not two places in a file")
				}
				offsets = append(offsets, n)
				return err
			})
		default:
			err = s.errorf("%s is none of dtype, shape and data_offsets", quoted(key))
		}
		return err
	})
	if err == nil && (len(seen) != 3 || len(offsets) != 2) {
		err = invalidf("it does not have a dtype, a shape and two data_offsets")
	}
	if err == nil {
		err = t.place(offsets[0], offsets[1])
	}
	if err != nil {
		return t, fmt.Errorf("tensor %s: %w", quoted(name), err)
	}
	return t, nil
}

func (s *scanner) shape() ([]int, error) {
	shape := []int{}
	return shape, s.array(func() error {
		n, err := s.number()
		switch {
		case err != nil:
			return err
		case n > math.MaxInt:
			return s.errorf("a dimension of %d is too large", n)
		case len(shape) == maxRank:
			return s.errorf("more than %d dimensions", maxRank)
		}
		shape = append(shape, int(n))
		return nil
	})
}

// place checks type, shape and place of a tensor against each other.
func (t *Info) place(first, end uint64) error {
	which := typeNamed(t.Type)
	if which < 0 {
		return invalidf("dtype %s is unknown", quoted(t.Type))
	}
	size, err := byteSize(dtypes[which], t.Shape)
	if err != nil {
		return err
	}
	if end < first || end-first != size {
		return invalidf("bytes %d to %d do not hold shape %v of %s, which takes %d", first, end, t.Shape, t.Type, size)
	}
	t.Type = dtypes[which].name // the table's memory, not a copy of it for each tensor
	t.DType, t.Start, t.Bytes = dtypes[which].ours, int64(first), int64(size)
	return nil
}

// byteSize is what a shape takes. As in the format's own reader, dimensions are multiplied from the first to the last, and a product that
// overflows is an error even where a later one is 0.
func byteSize(t dtype, shape []int) (uint64, error) {
	n := uint64(1)
	for _, dim := range append(slices.Clone(shape), int(t.bits)) {
		high, low := bits.Mul64(n, uint64(dim))
		if high != 0 {
			return 0, invalidf("shape %v of %s is too large", shape, t.name)
		}
		n = low
	}
	if n%8 != 0 {
		return 0, invalidf("shape %v of %s ends within a byte", shape, t.name)
	}
	return n / 8, nil
}
