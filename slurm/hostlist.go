package slurm

import (
	"fmt"
	"strings"

	"ddpbatch/internal/redact"
)

// MaxNodes is the most nodes that a Slurm job or step is believed to have, and the most numbers
// that one range of a hostlist may span (MAX_RANGE in Slurm's hostlist.c).
const MaxNodes = 1 << 16

// MaxHosts is the most names that a hostlist is ever expanded to. Slurm's own lists stay far below.
const MaxHosts = 1 << 22

// maxNameLen bounds one expanded name: the longest DNS name is 253 bytes, Slurm's own are shorter.
// Without it a long prefix before a wide range would multiply into gigabytes.
const maxNameLen = 255

// ExpandHostlist returns the names that a hostlist stands for, in Slurm's order, duplicates kept.
//
// Items are separated by commas, blanks, tabs or newlines; empty items mean nothing. An item may
// hold brackets with comma-separated numbers and ranges, as in "rack[0-1]node[00-03,07]-ib". A
// range is as wide as its low bound is written, so [8-11] gives 8 9 10 11 and [08-11] gives 08 09
// 10 11. Of several brackets the last turns fastest, then the first, then the second and so on,
// which is what `scontrol show hostnames` does.
//
// It differs from Slurm 22.05 on purpose in two ways: text after the last bracket is accepted
// (as Slurm itself does since 23.11), and whatever Slurm repairs silently is an error (unbalanced
// brackets, a range without its high bound, numbers that overflow).
//
// An error is returned, before memory is taken for names, where the list stands for more than
// maxHosts or [MaxHosts] names, or a range spans more than [MaxNodes] numbers.
func ExpandHostlist(list string, maxHosts int) ([]string, error) {
	patterns, err := parseHostlist(list)
	if err != nil {
		return nil, err
	}
	total, err := countAll(list, patterns)
	if err != nil {
		return nil, err
	}
	if limit := min(maxHosts, MaxHosts); total > limit {
		return nil, fmt.Errorf("hostlist %s: it stands for %d hosts, more than the %d allowed here", clip(list), total, limit)
	}
	hosts := make([]string, 0, total)
	for _, p := range patterns {
		hosts = p.appendNames(hosts)
	}
	return hosts, nil
}

// CountHosts returns how many names [ExpandHostlist] would give, duplicates counted each time,
// without expanding the list. A number that an int does not hold is an error.
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

// clip quotes text from outside for an error message, and shortens it to what a line can bear.
func clip(s string) string {
	const most = 80
	s = redact.Text(s)
	if len(s) > most {
		return fmt.Sprintf("%q...", strings.ToValidUTF8(s[:most], ""))
	}
	return fmt.Sprintf("%q", s)
}
