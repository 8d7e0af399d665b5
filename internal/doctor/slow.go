package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/slurm"
)

const (
	slowShare   = 0.6                   // a pair is slow below this share of the usual bandwidth
	slowTimes   = 3                     // or above this multiple of the usual latency,
	slowAtLeast = 20 * time.Microsecond // if it is also this much more
)

// usual is what a good pair has: the median of all pairs. With up to three pairs it is the best pair, as of three pairs two contain a
// single bad node.
type usual struct {
	latency   time.Duration
	bandwidth float64
}

func usualOf(pairs []Pair) usual {
	var latencies []time.Duration
	var bandwidths []float64
	for _, p := range pairs {
		latencies, bandwidths = append(latencies, p.Latency), append(bandwidths, p.Bandwidth)
	}
	slices.Sort(latencies)
	slices.Sort(bandwidths)
	n := len(pairs)
	if n <= 3 {
		return usual{latencies[0], bandwidths[n-1]}
	}
	return usual{latencies[(n-1)/2], bandwidths[n/2]} // the better one of two in the middle
}

// why says how a pair is slow. It returns "" if it is not.
func (u usual) why(p Pair) string {
	var words []string
	if p.Bandwidth < slowShare*u.bandwidth {
		words = append(words, rateText(p.Bandwidth))
	}
	if p.Latency > slowTimes*u.latency && p.Latency > u.latency+slowAtLeast {
		words = append(words, timeText(p.Latency))
	}
	return strings.Join(words, " and ")
}

// network makes the findings about the measured pairs. If all pairs of a node are slow, the node is slow, and its pairs are not listed.
// With only two nodes there is no other pair to compare with.
func (r *Report) network(f, wrong *findings) {
	if len(r.Pairs) == 0 {
		return
	}
	u := usualOf(r.Pairs)
	f.ok("network", "%s between nodes, through %s: %s, %s%s", pairsText(len(r.Pairs)), r.Backend,
		timeText(u.latency), rateText(u.bandwidth),
		rangeText(r.Pairs))
	const do = "exclude it (slurm.exclude), and tell the administrators: a link may have come up too slow, or a cable may be bad"
	slow := r.slowNodes(u)
	for node, pairs := range slow {
		if len(pairs) == 0 {
			continue
		}
		slices.SortFunc(pairs, byBandwidth)
		wrong.warn("network", do, "it is slow to all other nodes: %s at best; usual are %s, %s",
			u.why(pairs[len(pairs)-1]), timeText(u.latency),
			rateText(u.bandwidth))
		(*wrong)[len(*wrong)-1].Nodes = r.Nodes[node].Host
	}
	for _, p := range r.Pairs {
		if why := u.why(p); why != "" && len(slow[p.A]) == 0 && len(slow[p.B]) == 0 {
			wrong.warn("network", "tell the administrators: the link between these two nodes is slow, or busy",
				"%s between them; usual are %s, %s",
				why, timeText(u.latency), rateText(u.bandwidth))
			(*wrong)[len(*wrong)-1].Nodes = slurm.FoldHostlist([]string{r.Nodes[p.A].Host, r.Nodes[p.B].Host})
		}
	}
}

// slowNodes returns, for each node, its pairs if all of them are slow, and nothing otherwise. With only two nodes it returns nothing, as it
// cannot know which of them is slow.
func (r *Report) slowNodes(u usual) [][]Pair {
	of := make([][]Pair, len(r.Nodes))
	fast := make([]bool, len(r.Nodes))
	for _, p := range r.Pairs {
		for _, node := range []int{p.A, p.B} {
			of[node] = append(of[node], p)
			fast[node] = fast[node] || u.why(p) == ""
		}
	}
	for node := range of {
		if fast[node] || len(r.Nodes) < 3 {
			of[node] = nil
		}
	}
	return of
}

func pairsText(n int) string {
	if n == 1 {
		return "1 pair"
	}
	return fmt.Sprintf("the median of %d pairs", n)
}

// rangeText describes the worst pairs.
func rangeText(pairs []Pair) string {
	if len(pairs) < 2 {
		return ""
	}
	low := slices.MinFunc(pairs, byBandwidth)
	slow := slices.MaxFunc(pairs, func(a, b Pair) int { return cmp.Compare(a.Latency, b.Latency) })
	return fmt.Sprintf(" (the worst %s, %s)", timeText(slow.Latency), rateText(low.Bandwidth))
}

func byBandwidth(a, b Pair) int { return cmp.Compare(a.Bandwidth, b.Bandwidth) }

func timeText(d time.Duration) string { return fmt.Sprintf("%.4g us", float64(d)/1e3) }

func rateText(bytes float64) string {
	if bytes < 1e9 {
		return fmt.Sprintf("%.3g MB/s", bytes/1e6)
	}
	return fmt.Sprintf("%.3g GB/s", bytes/1e9)
}
