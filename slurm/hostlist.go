package slurm

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNodes is the largest number of nodes of a job or step that this package accepts, and the most numbers
// that one range of a hostlist may span (MAX_RANGE in Slurm's hostlist.c).
const MaxNodes = 1 << 16

// maxNameLen bounds one expanded name: the longest DNS name is 253 bytes, Slurm's own are shorter.
// Without it a long prefix before a wide range would multiply into gigabytes.
const maxNameLen = 255

// ExpandHostlist returns the names that a hostlist stands for, in Slurm's order, duplicates kept.
//
// Items are separated by commas, spaces, tabs or newlines; empty items are ignored. An item may
// hold brackets with comma-separated numbers and ranges, as in "rack[0-1]node[00-03,07]-ib". A
// range is as wide as its low bound is written, so [8-11] gives 8 9 10 11 and [08-11] gives 08 09
// 10 11. If there are several brackets, the last varies fastest, then the first, then the second and so on,
// as in `scontrol show hostnames`.
//
// It differs from Slurm 22.05 on purpose in two ways: it accepts text after the last bracket
// (as Slurm does since 23.11), and it returns an error for what Slurm repairs silently (unbalanced
// brackets, a range without its high bound, numbers that overflow).
//
// ExpandHostlist returns an error, before it allocates memory for names, if the list stands for more than
// maxHosts names, or if a range spans more than [MaxNodes] numbers.
func ExpandHostlist(list string, maxHosts int) ([]string, error) {
	patterns, err := parseHostlist(list)
	if err != nil {
		return nil, err
	}
	total, err := countAll(list, patterns)
	if err != nil {
		return nil, err
	}
	if total > maxHosts {
		return nil, fmt.Errorf("hostlist %s: it stands for %d hosts, more than the %d allowed here", clip(list), total, maxHosts)
	}
	hosts := make([]string, 0, total)
	for _, p := range patterns {
		hosts = p.appendNames(hosts)
	}
	return hosts, nil
}

// CountHosts returns how many names [ExpandHostlist] would return, duplicates included,
// without expanding the list. It returns an error if the number overflows an int.
func CountHosts(list string) (int, error) {
	patterns, err := parseHostlist(list)
	if err != nil {
		return 0, err
	}
	return countAll(list, patterns)
}

func countAll(list string, patterns []pattern) (int, error) {
	total := 0
	for _, p := range patterns {
		n, ok := p.count()
		if !ok || total+n < total {
			return 0, fmt.Errorf("hostlist %s: it stands for more hosts than can be counted", clip(list))
		}
		total += n
	}
	return total, nil
}

// parseHostlist parses a hostlist. Its time and memory are proportional to the length of the list,
// not to the number of names.
func parseHostlist(list string) ([]pattern, error) {
	if err := checkText(list); err != nil {
		return nil, fmt.Errorf("hostlist %s: %w", clip(list), err)
	}
	var patterns []pattern
	for _, item := range splitItems(list) {
		p, err := parsePattern(item)
		if err != nil {
			return nil, fmt.Errorf("hostlist %s: item %s: %w", clip(list), clip(item), err)
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// checkText refuses text that cannot be shown or logged safely as part of a name.
func checkText(list string) error {
	if !utf8.ValidString(list) {
		return errors.New("it is not valid UTF-8")
	}
	for _, r := range list {
		if unicode.IsControl(r) && r != '\t' && r != '\n' {
			return fmt.Errorf("it holds the control character %U", r)
		}
	}
	return nil
}

// splitItems splits the list at the separators outside brackets and omits empty items. An
// unbalanced bracket stays in its item, and parsePattern refuses it.
func splitItems(list string) []string {
	inside := false
	return strings.FieldsFunc(list, func(r rune) bool {
		switch r {
		case '[':
			inside = true
		case ']':
			inside = false
		case ',', ' ', '\t', '\n':
			return !inside
		}
		return false
	})
}

func parsePattern(item string) (pattern, error) {
	var p pattern
	length := 0
	for rest := item; ; {
		literal, inside, found := strings.Cut(rest, "[")
		if strings.ContainsRune(literal, ']') {
			return pattern{}, errors.New("a ] without its [")
		}
		p.literals = append(p.literals, literal)
		length += len(literal)
		if !found {
			break
		}
		inside, after, closed := strings.Cut(inside, "]")
		if !closed {
			return pattern{}, errors.New("a [ without its ]")
		}
		b, width, err := parseBracket(inside)
		if err != nil {
			return pattern{}, err
		}
		p.brackets = append(p.brackets, b)
		length += width
		rest = after
	}
	if length > maxNameLen {
		return pattern{}, fmt.Errorf("a name of %d bytes, more than the %d that a host name may have", length, maxNameLen)
	}
	return p, nil
}

// parseBracket reads "1-3,007"; width is the length of the longest number in it.
func parseBracket(inside string) (b bracket, width int, err error) {
	for text := range strings.SplitSeq(inside, ",") {
		s, err := parseSpan(text)
		if err != nil {
			return nil, 0, err
		}
		b = append(b, s)
		width = max(width, len(padded(s.hi, s.width)))
	}
	return b, width, nil
}

func parseSpan(text string) (span, error) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	lo, err := parseNumber(low)
	if err != nil {
		return span{}, fmt.Errorf("range %s: %w", clip(text), err)
	}
	hi, err := parseNumber(high)
	if err != nil {
		return span{}, fmt.Errorf("range %s: %w", clip(text), err)
	}
	if lo > hi {
		return span{}, fmt.Errorf("range %s runs backwards; write the lower number first", clip(text))
	}
	if hi-lo >= MaxNodes {
		return span{}, fmt.Errorf("range %s spans more than %d hosts, which Slurm refuses too", clip(text), MaxNodes)
	}
	// The low bound alone sets the width: [1-02] is 1, 2 and [9-010] is 9, 10.
	return span{lo: lo, hi: hi, width: len(low)}, nil
}

// parseNumber parses decimal digits, without a sign, spaces or underscores.
func parseNumber(digits string) (uint64, error) {
	if digits == "" {
		return 0, errors.New("a number is missing")
	}
	if strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%s is not a number; write [1,3-5]", clip(digits))
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the number %s is too large", clip(digits))
	}
	return n, nil
}

// pattern is one item of a hostlist: literal, bracket, literal, bracket, ... literal.
type pattern struct {
	literals []string // one more than brackets
	brackets []bracket
}

// bracket holds the contents of one pair of brackets: at least one span, in the order written.
type bracket []span

// span is the range of the numbers lo to hi, both included, written with at least width digits.
type span struct {
	lo, hi uint64
	width  int
}

func (s span) size() uint64 { return s.hi - s.lo + 1 }

// count returns how many names the pattern stands for; ok is false if the number overflows an int.
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

// appendNames appends the pattern's names. It counts like an odometer whose wheels are the brackets. The caller
// has checked that there are not too many.
func (p pattern) appendNames(hosts []string) []string {
	wheels := make([][]string, len(p.brackets))
	for i, b := range p.brackets {
		wheels[i] = b.numbers()
	}
	order := advanceOrder(len(wheels))
	at := make([]int, len(wheels))
	for {
		hosts = append(hosts, p.name(wheels, at))
		if !advance(order, wheels, at) {
			return hosts
		}
	}
}

// advanceOrder lists the brackets from the fastest to the slowest: the last, then the first, the
// second, the third. The order is odd because Slurm expands the last bracket of an item separately from the
// others.
func advanceOrder(brackets int) []int {
	order := make([]int, 0, brackets)
	if brackets > 0 {
		order = append(order, brackets-1)
	}
	for i := range brackets - 1 {
		order = append(order, i)
	}
	return order
}

// advance moves on to the next name. It returns false after the last one.
func advance(order []int, wheels [][]string, at []int) bool {
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

// padded formats n with at least width digits.
func padded(n uint64, width int) string {
	digits := strconv.FormatUint(n, 10)
	if len(digits) >= width {
		return digits
	}
	return strings.Repeat("0", width-len(digits)) + digits
}

// FoldHostlist formats names as a hostlist as `scontrol show hostlist` does: adjacent names that
// differ only in the number at their end share one bracket, consecutive numbers become
// a range, and the order and duplicates are kept. [ExpandHostlist] returns the same names again.
//
// The names must be such as ExpandHostlist returns (without separators, brackets or control
// characters); others are copied unchanged, and the result does not expand to them.
func FoldHostlist(hosts []string) string {
	var b strings.Builder
	for i := 0; i < len(hosts); {
		prefix, spans, next := takeGroup(hosts, i)
		if i > 0 {
			b.WriteByte(',')
		}
		if len(spans) == 0 || len(spans) == 1 && spans[0].lo == spans[0].hi {
			b.WriteString(hosts[i])
		} else {
			b.WriteString(prefix)
			writeBracket(&b, spans)
		}
		i = next
	}
	return b.String()
}

// takeGroup collects the names from hosts[i] on that share its prefix; next is the index of the first that
// does not. A name without a number at its end is a group by itself, without spans.
func takeGroup(hosts []string, i int) (prefix string, spans bracket, next int) {
	prefix, n, width, numbered := splitName(hosts[i])
	if !numbered {
		return prefix, nil, i + 1
	}
	spans = bracket{{lo: n, hi: n, width: width}}
	for next = i + 1; next < len(hosts); next++ {
		p, n, width, numbered := splitName(hosts[next])
		if !numbered || p != prefix {
			break
		}
		last := &spans[len(spans)-1]
		if last.hi < math.MaxUint64 && n == last.hi+1 && width == len(padded(n, last.width)) && last.size() < MaxNodes {
			last.hi = n
		} else {
			spans = append(spans, span{lo: n, hi: n, width: width})
		}
	}
	return prefix, spans, next
}

// splitName splits a name into a prefix and the number at its end. Digits that overflow a uint64 count as text
// (Slurm saturates them, and so loses the name).
func splitName(host string) (prefix string, n uint64, width int, numbered bool) {
	prefix = strings.TrimRight(host, "0123456789")
	digits := host[len(prefix):]
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return host, 0, 0, false
	}
	return prefix, n, len(digits), true
}

func writeBracket(b *strings.Builder, spans bracket) {
	b.WriteByte('[')
	for i, s := range spans {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(padded(s.lo, s.width))
		if s.hi > s.lo {
			b.WriteByte('-')
			b.WriteString(padded(s.hi, s.width))
		}
	}
	b.WriteByte(']')
}
