package distributed

import (
	"math"
	"slices"
	"sync"
	"time"

	"ddpbatch/checkpoint"
)

// Stats are statistics of the saves so far.
type Stats struct {
	Saves  int   // committed
	Step   int64 // of the newest committed; -1: none
	Raw    int64 // bytes of its arrays
	Stored int64 // bytes of its files on disk, as in checkpoint.Info.Bytes

	// Of this rank's newest call of Save.
	Wait time.Duration // for the previous save
	Copy time.Duration // for copying the state

	// Of the newest committed save.
	Encode time.Duration // on the slowest rank
	Write  time.Duration // on the slowest rank
	Sync   time.Duration // on the slowest rank
	Commit time.Duration // fence, manifest and retention, on rank 0

	Total Times // from the call of Save until the checkpoint is durable in the shared folder
}

// Times are the last and the 95th percentile of the newest saves.
type Times struct{ Last, P95 time.Duration }

// Ratio returns stored bytes divided by raw bytes of the newest checkpoint, or 0 if there is none.
func (s Stats) Ratio() float64 {
	if s.Raw == 0 {
		return 0
	}
	return float64(s.Stored) / float64(s.Raw)
}

// Stats returns statistics of the saves so far. It may be called at any time, by any goroutine.
func (s *Saver) Stats() Stats { return s.stats.get() }

// Space returns what was known of the shared folder's file system before the first save.
func (s *Saver) Space() checkpoint.Space { return s.space }

// Estimate returns the time that a durable save takes: the 95th percentile of those so far, or 0 before the first.
func (s *Saver) Estimate() time.Duration { return s.stats.get().Total.P95 }

// statsRecorder collects Stats.
type statsRecorder struct {
	mu    sync.Mutex
	now   Stats // without Total
	total window
}

func (r *statsRecorder) get() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.now
	s.Total = r.total.times()
	return s
}

// called records a call of Save that has copied the state.
func (r *statsRecorder) called(waited, copied time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Wait, r.now.Copy = waited, copied
}

// committed records a job that was committed.
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
	n    int // number of durations ever added
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

// quantile returns the percentile by nearest rank: the smallest duration that is at least as large as the given percentage of them.
func (w *window) quantile(percent int) time.Duration {
	sorted := slices.Clone(w.last[:min(w.n, len(w.last))])
	slices.Sort(sorted)
	return sorted[(len(sorted)*percent+99)/100-1]
}

// Interval returns the time between saves that loses the least time to saves and failures together: sqrt(2 cost mtbf), where
// cost is how long training stands still for a save and mtbf the mean time between failures of the whole job. It is valid for
// a cost well below mtbf. J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
// J. T. Daly (2006) refines it.
func Interval(cost, mtbf time.Duration) time.Duration {
	if cost <= 0 || mtbf <= 0 {
		return 0
	}
	return time.Duration(math.Sqrt(2 * float64(cost) * float64(mtbf)))
}
