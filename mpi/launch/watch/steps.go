package watch

import (
	"slices"
	"time"
)

// Steps finds out how long the steps of each rank of a run take, and which ranks are clearly slower than the others.
//
// Ranks that average their gradients wait for each other in each step, so that the steps of all take as long as those of the slowest. It
// shows in what is no waiting: compute and input. Where no rank says how its time divides, only ranks that do not wait for each other can
// be compared.
//
// A step may be longer than a window, and what an agent says may come after the end of the window that it is about. So each rank has a
// window of its own, from the last step that was known at the end of one window to the last that is known at the end of another.
//
// Not safe for concurrent use.
type Steps struct {
	ranks []rankSteps
}

// rankSteps is what is remembered of a rank.
type rankSteps struct {
	host        string
	first, last timedBeat // at the beginning of the window, and the newest; At zero: none
	slow, even  int       // windows in a row in which it was, or was not, slower; those in which it has finished no step do not count
	without     int       // windows of the others in a row in which it has finished no step
	named       bool
	times       float64 // by the median's, in the last window that counts
	part        int     // see SlowRank
}

type timedBeat struct {
	Beat
	At time.Time
}

// NewSteps is for a run of so many ranks.
func NewSteps(ranks int) *Steps { return &Steps{ranks: make([]rankSteps, ranks)} }

// Note takes what a rank's heartbeat file says, which was written at a time of its node's clock.
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

// StepWindow is how long the steps of a window took, in seconds by rank; 0: not known.
type StepWindow struct {
	Step  int64 // the highest that a rank has finished
	Hosts []string
	Whole []float64
	Part  [Parts][]float64 // nil: no rank says
	Slow  []SlowRank       // named by now
}

// SlowRank is a rank, or a node all of whose ranks are, that is slower than the others.
type SlowRank struct {
	Rank  int // -1: all of the host
	Host  string
	Times float64 // as long as the median's
	Part  int     // Parts: not known
}

// Window ends a window, and begins the next one. It is false where no rank has finished a step in it that is known.
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
			if spent := after - before; before >= 0 && spent >= 0 && spent <= took+1 { // the line is a little older than its file's time
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
	slowTimes    = 1.3   // the median's: less is what machines of one kind differ by
	slowSpread   = 9     // times the median of how far ranks are from the median: six standard deviations, where they are spread normally
	slowShare    = 0.05  // of a whole step: less would gain nobody anything
	slowAtLeast  = 0.001 // seconds
	slowWindows  = 3     // in a row, until a rank is named, and until it is no longer
	minSlowRanks = 2

	mostWithout = 3 * slowWindows // in a row without a step of its own, until a rank is named no longer
)

// judge returns the ranks that have been slower for long enough. One that has finished no step in this window stays what it was, for
// mostWithout windows: it may have ceased to say its steps, and whether it hangs others find out.
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

// compare notes which ranks were slower than the others in a window; own: what is compared is without their waiting for each other.
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
		case x == 0: // nothing is known of it in this window
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

// own is what each rank spends on its own, without waiting for others; nil: no rank says.
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
		var counted []float64 // with zeros: a part may take no time at all
		for i, x := range list {
			if w.Whole[i] > 0 {
				counted = append(counted, x)
			}
		}
		usual[part] = lowerMedian(counted)
	}
	return usual
}

// slowPart is the part in which a rank takes most beyond what is usual.
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

// byHost puts a host in the place of its ranks where all of them are slower, and others are not.
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

// known are the values that are not 0.
func known(values []float64) (list []float64) {
	for _, x := range values {
		if x > 0 {
			list = append(list, x)
		}
	}
	return list
}

// median is that of the known values.
func median(values []float64) float64 { return lowerMedian(known(values)) }

// lowerMedian is the lower one of the two in the middle, where there are two: of two ranks the faster one is the measure.
func lowerMedian(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[(len(values)-1)/2]
}
