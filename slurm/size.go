package slurm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize reads an amount of memory as sbatch(1) describes --mem, and returns bytes: a whole
// number of MiB, or of what the suffix says: K, M, G or T (powers of 1024), in either case, with or
// without a B after it. As in Slurm there are no fractions and no P. Zero, which sbatch takes for
// all of a node's memory, is 0.
func ParseSize(s string) (bytes int64, err error) {
	digits, shift := splitUnit(s)
	n, err := strconv.ParseUint(digits, 10, 63)
	if errors.Is(err, strconv.ErrRange) || err == nil && n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("size %s: it is larger than 8 EiB", clip(s))
	}
	if err != nil {
		return 0, fmt.Errorf("size %s: write a whole number of MiB, or one with K, M, G or T after it, such as 1500M or 32G", clip(s))
	}
	return int64(n) << shift, nil
}

// splitUnit parts the digits from the unit; shift is the unit's binary logarithm. What is no
// unit stays with the digits, which then are none: a lone B, for one, since Slurm knows no bytes.
func splitUnit(s string) (digits string, shift uint) {
	body := strings.TrimRight(s, "bB")
	if len(body) < len(s)-1 || body == "" {
		return s, 0
	}
	end := len(body) - 1
	switch body[end] {
	case 'k', 'K':
		return body[:end], 10
	case 'm', 'M':
		return body[:end], 20
	case 'g', 'G':
		return body[:end], 30
	case 't', 'T':
		return body[:end], 40
	}
	return s, 20
}
