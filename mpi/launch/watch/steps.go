package watch

import (
	"slices"
	"time"
)

// Steps finds out how long the steps of each rank of a run take, and which ranks are clearly slower than the others.
//
// Ranks that average their gradients wait for each other in each step, so every rank's steps take as long as those of the slowest.
// The difference shows in the time without waiting: compute and input. If no rank reports how its time divides, only ranks that do
// not wait for each other can be compared.
//
// A step may be longer than a window, and an agent's report may come after the end of the window that it is about. So each rank has
// its own window: from its last step that was known at the end of one window to its last step that is known at the end of a later
// one.
//
// Steps is not safe for concurrent use.
type Steps struct {
	ranks []rankSteps
}

// rankSteps is the state of one rank.
type rankSteps struct {
	host        string
	first, last timedBeat // at the beginning of the window, and the newest; zero At: none
	slow, even  int       // windows in a row in which it was, or was not, slower; windows in which it did not finish a step do not count
	without     int       // the others' windows in a row in which it did not finish a step
	named       bool
	times       float64 // its step time as a multiple of the median's, in the last window that counts
	part        int     // see SlowRank
}

type timedBeat struct {
	Beat
	At time.Time
}

// NewSteps returns a Steps for a run with the given number of ranks.
func NewSteps(ranks int) *Steps { return &Steps{ranks: make([]rankSteps, ranks)} }

// Note records the content of a rank's heartbeat file, and when it was written, by its node's clock.
func (s *Steps) Note(rank int, host string, at time.Time, b Beat) {
	if rank < 0 || rank >= len(s.ranks) {
		return
	}
	r := &s.ranks[rank]
	r.host = host
	if r.last = (timedBeat{b, at}); r.first.At.IsZero() || b.Step < r.first.Step || at.Before(r.first.At) {
		r.first = r.last
	}
}

// StepWindow holds how long the steps of a window took, in seconds by rank; 0: not known.
type StepWindow struct {
	Step  int64 // the highest step that a rank has finished
	Hosts []string
	Whole []float64
	Part  [Parts][]float64 // nil: not known of any rank
	Slow  []SlowRank       // the ranks to name as slow
}

// SlowRank is a rank that is slower than the others, or a node all of whose ranks are.
type SlowRank struct {
	Rank  int // -1: all ranks of the host
	Host  string
	Times float64 // its step time as a multiple of the median's
	Part  int     // Parts: not known
}

// Window ends a window, and begins the next one. ok is false if no rank is known to have finished a step in it.
func (s *Steps) Window() (w StepWindow, ok bool) {
	n := len(s.ranks)
	w.Whole, w.Hosts = make([]float64, n), make([]string, n)
	for i := range s.ranks {
		r := &s.ranks[i]
		w.Hosts[i] = r.host
		w.Step = max(w.Step, r.last.Step)
		steps, took := float64(r.last.Step-r.first.Step), r.last.At.Sub(r.first.At).Seconds()
		if steps <= 0 || took <= 0 {
			continue // its window goes on
		}
		ok = true
		w.Whole[i] = took / steps
		for part := range Parts {
			before, after := r.first.Spent[part], r.last.Spent[part]
			if spent := after - before; before >= 0 && spent >= 0 && spent <= took+1 { // the line is slightly older than its file's time
				if w.Part[part] == nil {
					w.Part[part] = make([]float64, n)
				}
				w.Part[part][i] = spent / steps
			}
		}
		r.first = r.last
	}
	if ok {
		w.Slow = s.judge(&w)
	}
	return w, ok
}

const (
	slowTimes    = 1.3   // times the median: machines of one kind differ by less
	slowSpread   = 9     // times the median distance of ranks from the median: six standard deviations of a normal distribution
	slowShare    = 0.05  // of a whole step: a smaller gain is not worth the effort
	slowAtLeast  = 0.001 // seconds
	slowWindows  = 3     // in a row, until a rank is named as slow, and until it is not any more
	minSlowRanks = 2

	mostWithout = 3 * slowWindows // in a row without a step, until a rank is not named any more
)

// judge returns the ranks that have been slower for long enough. A rank that did not finish a step in this window keeps its status
// for mostWithout windows: it may have stopped reporting its steps. Other code finds out whether it hangs.
func (s *Steps) judge(w *StepWindow) []SlowRank {
	own := w.own()
	compared := own
	if compared == nil {
		compared = w.Whole
	}
	if len(known(compared)) >= minSlowRanks {
		s.compare(w, compared, own != nil)
	}
	var named []SlowRank
	for i := range s.ranks {
		r := &s.ranks[i]
		if r.without++; w.Whole[i] > 0 {
			r.without = 0
		}
		r.named = r.named && r.without < mostWithout
		if r.named {
			named = append(named, SlowRank{i, r.host, r.times, r.part})
		}
	}
	return s.byHost(named)
}

// compare records which ranks were slower than the others in a window. own reports whether the compared times exclude waiting for others.
func (s *Steps) compare(w *StepWindow, compared []float64, own bool) {
	middle := median(compared)
	var far []float64
	for _, x := range known(compared) {
		far = append(far, max(x-middle, middle-x))
	}
	least := max(slowSpread*lowerMedian(far), slowShare*median(w.Whole), slowAtLeast)
	usual := w.usualParts()
	for i, x := range compared {
		r := &s.ranks[i]
		switch {
		case x == 0: // not known in this window
			continue
		case x > slowTimes*middle && x-middle > least:
			r.slow, r.even = r.slow+1, 0
		default:
			r.slow, r.even = 0, r.even+1
		}
		r.named = r.named && r.even < slowWindows || r.slow >= slowWindows
		r.times, r.part = x/middle, w.slowPart(i, usual, own)
	}
}

// own is the time that each rank spends without waiting for others; nil: not known of any rank.
func (w *StepWindow) own() []float64 {
	compute, input := w.Part[Compute], w.Part[Input]
	if compute == nil {
		return nil
	}
	own := slices.Clone(compute)
	for i := range own {
		if input != nil && own[i] > 0 {
			own[i] += input[i]
		}
	}
	return own
}

// usualParts are the medians of the parts.
func (w *StepWindow) usualParts() (usual [Parts]float64) {
	for part, list := range w.Part {
		var counted []float64 // includes zeros: a part may take no time
		for i, x := range list {
			if w.Whole[i] > 0 {
				counted = append(counted, x)
			}
		}
		usual[part] = lowerMedian(counted)
	}
	return usual
}

// slowPart is the part in which a rank exceeds the usual time the most.
func (w *StepWindow) slowPart(rank int, usual [Parts]float64, own bool) int {
	most, slow := 0.0, Parts
	for part, list := range w.Part {
		if list == nil || own && part == Comm {
			continue
		}
		if more := list[rank] - usual[part]; more > most {
			most, slow = more, part
		}
	}
	return slow
}

// byHost replaces the ranks of a host by the host if there are several and all of them are slow.
func (s *Steps) byHost(named []SlowRank) []SlowRank {
	all, slow := map[string]int{}, map[string][]SlowRank{}
	for _, r := range s.ranks {
		all[r.host]++
	}
	for _, one := range named {
		slow[one.Host] = append(slow[one.Host], one)
	}
	var list []SlowRank
	for _, one := range named {
		same := slow[one.Host]
		switch whole := len(same) > 1 && len(same) == all[one.Host]; {
		case !whole:
			list = append(list, one)
		case one == same[0]:
			times := make([]float64, len(same))
			for i := range same {
				times[i] = same[i].Times
				if same[i].Part != one.Part {
					one.Part = Parts
				}
			}
			list = append(list, SlowRank{-1, one.Host, lowerMedian(times), one.Part})
		}
	}
	return list
}

// known returns the values that are not 0.
func known(values []float64) (list []float64) {
	for _, x := range values {
		if x > 0 {
			list = append(list, x)
		}
	}
	return list
}

// median is the lower median of the known values.
func median(values []float64) float64 { return lowerMedian(known(values)) }

// lowerMedian is the median, or the lower of the two middle values: of two ranks, the faster one is the reference.
func lowerMedian(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[(len(values)-1)/2]
}
