package data

import (
	"fmt"
	"strconv"
	"strings"
)

// Range is the rows from First up to, not including, End.
type Range struct{ First, End int }

// ParseRange reads "first:end", such as "0:9000". Both numbers are required, and the
// range is not empty.
func ParseRange(s string) (Range, error) {
	first, end, found := strings.Cut(s, ":")
	if !found {
		return Range{}, fmt.Errorf("range %q: write it as FIRST:END, such as 0:9000", s)
	}
	var r Range
	for _, part := range []struct {
		text string
		to   *int
	}{{first, &r.First}, {end, &r.End}} {
		// Atoi would accept a sign.
		n, err := strconv.ParseUint(part.text, 10, 31)
		if err != nil {
			return Range{}, fmt.Errorf("range %q: %q is not a row number from 0 to 2147483647", s, part.text)
		}
		*part.to = int(n)
	}
	if r.First >= r.End {
		return Range{}, fmt.Errorf("range %q is empty: the second number is the row after the last", s)
	}
	return r, nil
}

func (r Range) String() string { return fmt.Sprintf("%d:%d", r.First, r.End) }

type subset struct {
	Dataset
	r Range
}

// Subset returns the rows r of d, numbered from 0, as a view.
func Subset(d Dataset, r Range) (Dataset, error) {
	if r.First < 0 || r.First >= r.End {
		return nil, fmt.Errorf("range %v holds no rows", r)
	}
	if r.End > d.Len() {
		return nil, fmt.Errorf("range %v goes beyond the data, which has %d rows", r, d.Len())
	}
	return subset{d, r}, nil
}

func (s subset) Len() int { return s.r.End - s.r.First }

func (s subset) Read(i int, x, y []float32, labels []int) {
	if i < 0 || i >= s.Len() {
		panic(badRow)
	}
	s.Dataset.Read(s.r.First+i, x, y, labels)
}

func (s subset) hash(h *stoppable, first, end int) {
	hashRows(h, s.Dataset, s.r.First+first, s.r.First+end)
}
