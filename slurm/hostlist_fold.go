package slurm

import (
	"math"
	"strconv"
	"strings"
)

// FoldHostlist writes names as a hostlist the way `scontrol show hostlist` does: neighbours that
// differ only in the number at their end share one bracket, numbers that follow on each other become
// a range, and the order and duplicates are kept. [ExpandHostlist] gives the same names back.
//
// The names must be such as ExpandHostlist returns (no separators, brackets or control
// characters); others are copied as they stand and will not read back.
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

// takeGroup gathers the names from hosts[i] on that share its prefix; next is the first that
// does not. A name without a number at its end is a group of its own, with no spans.
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

// splitName parts a name from the digits at its end. Digits that no uint64 holds count as text
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
