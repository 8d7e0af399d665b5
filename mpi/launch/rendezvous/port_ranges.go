package rendezvous

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// PortRange is the ports from First to Last, both included.
type PortRange struct{ First, Last int }

// PortRanges are the ranges that ports are taken from. An empty list stands for the default ones.
type PortRanges []PortRange

// usualRanges lie outside Linux's default range for outgoing connections,
// 32768-60999 (ip(7), ip_local_port_range), so that no client happens to hold
// one of them.
var usualRanges = PortRanges{{61000, 65535}, {20000, 32767}}

// leastPorts is the fewest ports that ParsePorts accepts: jobs that share a node must find different ports.
const leastPorts = 8

// mostRanges is more than any firewall leaves open.
const mostRanges = 64

// firstPort is the first port that needs no privilege (ip(7), ip_unprivileged_port_start).
const firstPort = 1024

// ParsePorts parses ranges of ports, such as "61000-65535", separated by commas. They must not overlap.
func ParsePorts(text string) (PortRanges, error) {
	var ranges PortRanges
	count := 0
	for word := range strings.SplitSeq(text, ",") {
		if len(ranges) == mostRanges {
			return nil, fmt.Errorf("more than %d ranges of ports: write fewer, longer ones", mostRanges)
		}
		r, err := parsePortRange(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		for _, other := range ranges {
			if r.First <= other.Last && other.First <= r.Last {
				return nil, fmt.Errorf("%v and %v overlap: write one range", other, r)
			}
		}
		ranges = append(ranges, r)
		count += r.Last - r.First + 1
	}
	if count < leastPorts {
		return nil, fmt.Errorf("%q has fewer than %d ports: jobs that share a node must find different ones", text, leastPorts)
	}
	return ranges, nil
}

func parsePortRange(word string) (PortRange, error) {
	from, to, isRange := strings.Cut(word, "-")
	if !isRange {
		to = from
	}
	first, err := strconv.ParseUint(from, 10, 16)
	last, lastErr := strconv.ParseUint(to, 10, 16)
	switch {
	case err != nil || lastErr != nil:
		return PortRange{}, fmt.Errorf(`%q is not a range of ports from %d to 65535: write "61000-65535", or several with commas between`,
			word, firstPort)
	case first < firstPort:
		return PortRange{}, fmt.Errorf("%q has ports below %d, which only root may listen at", word, firstPort)
	case last < first:
		return PortRange{}, fmt.Errorf("%q ends before it begins", word)
	}
	return PortRange{int(first), int(last)}, nil
}

// String returns the range in the form that ParsePorts reads.
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Count is the number of ports in all ranges.
func (r PortRanges) Count() (n int) {
	for _, one := range r {
		n += one.Last - one.First + 1
	}
	return n
}

// Ports is PortRanges.Ports for the default ranges.
func Ports(seed string, n int) []int { return PortRanges(nil).Ports(seed, n) }

// Ports lists up to n ports in an order that the seed decides. Every node that knows the seed (cluster, job, step, restart) tries
// the same ports, and two jobs on a node try different ones. Ports of the first range come first; of the default ranges that is
// 61000 to 65535. No port comes twice.
func (r PortRanges) Ports(seed string, n int) []int {
	if len(r) == 0 {
		r = usualRanges
	}
	sum := sha256.Sum256([]byte(seed))
	start, stride := binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])
	var list []int
	for _, one := range r {
		// Steps of a length that has no factor in common with the range visit
		// each port once.
		count := uint64(one.Last - one.First + 1)
		step := stride%count + 1
		for gcd(step, count) != 1 {
			step++
		}
		for i := uint64(0); i < count && len(list) < n; i++ {
			list = append(list, one.First+int((start%count+i*step)%count))
		}
	}
	return list
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
