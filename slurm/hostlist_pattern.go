package slurm

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// pattern is one item of a hostlist: literal, bracket, literal, bracket, ... literal.
type pattern struct {
	literals []string // one more than brackets
	brackets []bracket
}

// bracket is the inside of one pair of brackets: at least one span, in the order written.
type bracket []span

// span is the numbers lo to hi, both included, written with at least width digits.
type span struct {
	lo, hi uint64
	width  int
}

func (s span) size() uint64 { return s.hi - s.lo + 1 }

// count is how many names the pattern stands for; ok is false where an int does not hold it.
func (p pattern) count() (n int, ok bool) {
	product := uint64(1)
	for _, b := range p.brackets {
		var size uint64
		for _, s := range b {
			size += s.size() // cannot overflow: a span has at most MaxNodes numbers
		}
		high, low := bits.Mul64(product, size)
		if high != 0 || low > math.MaxInt {
			return 0, false
		}
		product = low
	}
	return int(product), true
}

// appendNames appends the pattern's names, an odometer whose wheels are the brackets. The caller
// has checked that there are not too many.
func (p pattern) appendNames(hosts []string) []string {
	wheels := make([][]string, len(p.brackets))
	for i, b := range p.brackets {
		wheels[i] = b.numbers()
	}
	order := turningOrder(len(wheels))
	at := make([]int, len(wheels))
	for {
		hosts = append(hosts, p.name(wheels, at))
		if !turn(order, wheels, at) {
			return hosts
		}
	}
}

// turningOrder lists the brackets from the fastest to the slowest: the last, then the first, the
// second, the third. Slurm expands the last bracket of an item on its own and the others in front
// of it by another path, hence the odd order.
func turningOrder(brackets int) []int {
	order := make([]int, 0, brackets)
	if brackets > 0 {
		order = append(order, brackets-1)
	}
	for i := range brackets - 1 {
		order = append(order, i)
	}
	return order
}

// turn moves on to the next name; false says that all have been seen.
func turn(order []int, wheels [][]string, at []int) bool {
	for _, w := range order {
		at[w]++
		if at[w] < len(wheels[w]) {
			return true
		}
		at[w] = 0
	}
	return false
}

func (p pattern) name(wheels [][]string, at []int) string {
	if len(wheels) == 0 {
		return p.literals[0]
	}
	var b strings.Builder
	for i, w := range wheels {
		b.WriteString(p.literals[i])
		b.WriteString(w[at[i]])
	}
	b.WriteString(p.literals[len(wheels)])
	return b.String()
}

func (b bracket) numbers() []string {
	var texts []string
	for _, s := range b {
		for i := range s.size() {
			texts = append(texts, padded(s.lo+i, s.width))
		}
	}
	return texts
}

// padded writes n with at least width digits.
func padded(n uint64, width int) string {
	digits := strconv.FormatUint(n, 10)
	if len(digits) >= width {
		return digits
	}
	return strings.Repeat("0", width-len(digits)) + digits
}
