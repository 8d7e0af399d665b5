package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxElements is Slurm's own default bound of an array (slurm.conf, MaxArraySize).
const maxElements = 1001

// Array is what sbatch's --array asks for: the indices of its elements, ascending, and how many may run at once.
type Array struct {
	Indices []int
	Limit   int // 0: all
}

// String returns the array as ParseArray reads it: "0-15%4", "1,3,7-9".
func (a Array) String() string {
	var spans []string
	for i := 0; i < len(a.Indices); {
		end := i
		for end+1 < len(a.Indices) && a.Indices[end+1] == a.Indices[end]+1 {
			end++
		}
		span := strconv.Itoa(a.Indices[i])
		if end > i {
			span += "-" + strconv.Itoa(a.Indices[end])
		}
		spans = append(spans, span)
		i = end + 1
	}
	text := strings.Join(spans, ",")
	if a.Limit > 0 {
		text += "%" + strconv.Itoa(a.Limit)
	}
	return text
}

// ErrLargeIndex is the error of ParseArray for an index that a site may allow, but that Slurm refuses by default.
var ErrLargeIndex = fmt.Errorf("above %d, the largest that Slurm takes by default (MaxArraySize - 1)", maxElements-1)

// ParseArray reads what --array takes (sbatch(1)): "0-15%4", "1,3,7", "0-20:5". Indices above 1000, Slurm's default bound (MaxArraySize),
// are refused with ErrLargeIndex.
func ParseArray(text string) (Array, error) {
	list, limit, limited := strings.Cut(text, "%")
	var a Array
	if limited {
		n, err := arrayNumber(limit)
		if err != nil || n == 0 {
			return a, fmt.Errorf("array %q: write after %% how many elements may run at once, 1 or more", text)
		}
		a.Limit = n
	}
	for item := range strings.SplitSeq(list, ",") {
		span, err := arraySpan(item)
		if err != nil {
			return Array{}, fmt.Errorf("array %q: %w", text, err)
		}
		a.Indices = append(a.Indices, span...)
	}
	slices.Sort(a.Indices)
	a.Indices = slices.Compact(a.Indices)
	return a, nil
}

// arraySpan reads "7", "3-6" or "20-40:5".
func arraySpan(item string) ([]int, error) {
	bounds, step, stepped := strings.Cut(item, ":")
	low, high, ranged := strings.Cut(bounds, "-")
	if !ranged {
		high = low
	}
	if !stepped {
		step = "1"
	}
	from, err1 := arrayNumber(low)
	to, err2 := arrayNumber(high)
	by, err3 := arrayNumber(step)
	switch {
	case err1 != nil || err2 != nil || err3 != nil || stepped && !ranged:
		return nil, fmt.Errorf("%q is neither an index nor a range; write 0-15, 1,3,7 or 0-20:5", item)
	case to < from:
		return nil, fmt.Errorf("the range %q runs backwards; write the lower number first", item)
	case to >= maxElements:
		return nil, fmt.Errorf("index %d is %w", to, ErrLargeIndex)
	case by == 0:
		return nil, fmt.Errorf("the step of %q is 0; write 1 or more", item)
	}
	var span []int
	for i := from; i <= to; i += by {
		span = append(span, i)
	}
	return span, nil
}

func arrayNumber(digits string) (int, error) {
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err
}
