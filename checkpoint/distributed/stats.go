package distributed

import (
	"math"
	"slices"
	"sync"
	"time"

	"ddpbatch/checkpoint"
)

// Stats are figures of the saves so far.
type Stats struct {
	Saves  int   // committed
	Step   int64 // of the newest committed; -1: none
	Raw    int64 // bytes of its arrays
	Stored int64 // bytes of its files on disk, as checkpoint.Info.Bytes has them

	// Of the newest call of Save, this rank's.
	Wait time.Duration // for the save before
	Copy time.Duration // of the state

	// Of the newest committed.
	Encode time.Duration // the slowest rank's
	Write  time.Duration // the slowest rank's
	Sync   time.Duration // the slowest rank's
	Commit time.Duration // fence, manifest and retention, rank 0's

	Total Times // from the call of Save until the checkpoint is durable in the shared folder
}

// Times are the last and the 95th percentile of the newest saves.
type Times struct{ Last, P95 time.Duration }

// Ratio is stored over raw bytes of the newest checkpoint; 0 where there is none.
func (s Stats) Ratio() float64 {
	if s.Raw == 0 {
		return 0
	}
	return float64(s.Stored) / float64(s.Raw)
}

// Stats may be called at any time, by any goroutine.
func (s *Saver) Stats() Stats { return s.stats.get() }

// Space is the file system of the shared folder, as it was before the first save.
func (s *Saver) Space() checkpoint.Space { return s.space }

// Estimate is what a durable save takes: the 95th percentile of those so far; 0 before the first.
func (s *Saver) Estimate() time.Duration { return s.stats.get().Total.P95 }

// statsRecorder collects Stats.
type statsRecorder struct {
	mu    sync.Mutex
	now   Stats // but for Total
	total window
}

func (r *statsRecorder) get() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.now
	s.Total = r.total.times()
	return s
}

// called takes note of a call of Save that has copied the state.
func (r *statsRecorder) called(waited, copied time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Wait, r.now.Copy = waited, copied
}

// committed counts a job that was committed.
func (r *statsRecorder) committed(o *outcome, j *job, total time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Saves++
	r.now.Step, r.now.Raw, r.now.Stored = j.meta.Step, o.Info.RawBytes, o.Info.Bytes
	r.now.Encode, r.now.Write = seconds(o.Times.Encode), seconds(o.Times.Write)
	r.now.Sync, r.now.Commit = seconds(o.Times.Sync), seconds(o.Times.Commit)
	r.total.add(total)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// window keeps the newest durations.
type window struct {
	last [64]time.Duration
	n    int // ever added
}

func (w *window) add(d time.Duration) {
	w.last[w.n%len(w.last)] = d
	w.n++
}

func (w *window) times() Times {
	if w.n == 0 {
		return Times{}
	}
	return Times{Last: w.last[(w.n-1)%len(w.last)], P95: w.quantile(95)}
}

// quantile is by nearest rank: the smallest that so many per cent are not above.
func (w *window) quantile(percent int) time.Duration {
	sorted := slices.Clone(w.last[:min(w.n, len(w.last))])
	slices.Sort(sorted)
	return sorted[(len(sorted)*percent+99)/100-1]
}

// Interval is the time between saves that loses least to saves and failures together: sqrt(2 cost mtbf), where
// cost is how long training stands still for a save and mtbf the mean time between failures of the whole job. It holds for
// cost well below mtbf. J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
// J. T. Daly (2006) refines it.
func Interval(cost, mtbf time.Duration) time.Duration {
	if cost <= 0 || mtbf <= 0 {
		return 0
	}
	return time.Duration(math.Sqrt(2 * float64(cost) * float64(mtbf)))
}
