package watch

import (
	"cmp"
	"slices"
	"time"
)

const (
	// busy is the share of a core below which a worker counts as idle: waiting threads wake now and then. Gloo's thread, one in
	// each process group, does so a hundred times a second (gloo/transport/tcp/loop.cc), which is one percent of a core of a slow
	// virtual machine.
	busy = 0.02
	// window is how long processor time is accumulated before it is judged: the kernel counts it in steps of 10 ms.
	window = 10 * time.Second
	// shares is the number of parts that the timeout is divided into. At most one part counts as silence for each observation, and
	// processor time is accumulated for at most one part.
	shares = 4
)

// Sample is an observation of one worker.
type Sample struct {
	Heartbeat time.Time     // when its heartbeat file was last changed; zero: no file
	Logged    int64         // bytes that it has written to its output
	CPU       time.Duration // processor time of the worker and its descendants
	Stopped   bool          // by SIGSTOP or a debugger
	Ended     bool          // no more signs of life are expected
}

// Watch finds out when all workers of a node have stopped giving signs of life. Once a worker has changed its heartbeat file, only
// further changes count as signs. Of any other worker, and of one whose file was removed, output and processor time count. (A rank
// that waits for others on a GPU may be at full load: only a heartbeat shows that it makes no progress.)
//
// One worker that gives signs is enough, as the others may wait for it. Watch is not safe for concurrent use.
type Watch struct {
	timeout time.Duration
	last    time.Time // of the observation before
	workers []worker
	silence time.Duration // of all workers together; each observation adds at most a quarter of the timeout
	longest time.Duration // the longest silence that a sign of life has ended
}

// Quiet describes a worker that is expected to give signs of life.
type Quiet struct {
	Worker  int           // its index among the samples
	For     time.Duration // since its last sign, counting only time in which this process ran
	Beats   bool          // it uses its heartbeat file, so only that counts
	Stopped bool          // as of the last observation
}

// worker is the state of one worker.
type worker struct {
	sample  Sample
	beating bool          // it uses its heartbeat file, which exists
	silence time.Duration // of this worker

	gathered time.Duration // for how long processor time has been accumulated
	used     time.Duration // the processor time that it had used when that began
}

// New returns a Watch for the given number of workers, which count as hung when none has given a sign for timeout.
func New(timeout time.Duration, workers int) *Watch {
	return &Watch{timeout: timeout, workers: make([]worker, workers)}
}

// Observe records what was observed of the workers at now. samples has an element for each worker, always in the same order.
// Observe is to be called several times in a timeout: of the time between two calls, at most a quarter of the timeout counts as
// silence, because in a longer time this process did not run either (when Slurm suspends a job, it stops all of it). The silence
// begins with the first call.
//
// It reports whether the workers have been silent for the timeout, even if all of them have ended: an end is a sign, too, and no
// other can follow it.
func (w *Watch) Observe(now time.Time, samples []Sample) bool {
	if w.last.IsZero() {
		for i, s := range samples[:len(w.workers)] {
			w.workers[i] = worker{sample: s, beating: !s.Heartbeat.IsZero(), used: s.CPU}
		}
		w.last = now
		return false
	}
	step := w.timeout / shares
	passed := min(max(0, now.Sub(w.last)), step)
	w.last = now
	w.silence += passed
	for i := range w.workers {
		if w.workers[i].observe(samples[i], passed, min(window, step)) {
			w.longest, w.silence = max(w.longest, w.silence), 0
		}
	}
	return w.silence >= w.timeout
}

// Silence is how long no worker had given a sign of life at the last observation. It is 0 if the workers have been silent for half as long
// before, as they are between rare heartbeats.
func (w *Watch) Silence() time.Duration {
	if w.silence < 2*w.longest {
		return 0
	}
	return w.silence
}

// Quiet lists the workers that have not ended, those that have been silent longest first. Of workers that fell silent between the
// same two observations, stopped ones come first.
func (w *Watch) Quiet() []Quiet {
	var list []Quiet
	for i, one := range w.workers {
		if !one.sample.Ended {
			list = append(list, Quiet{Worker: i, For: one.silence, Beats: one.beating, Stopped: one.sample.Stopped})
		}
	}
	slices.SortStableFunc(list, Quiet.compare)
	return list
}

// observe reports whether a worker gave a sign since the previous observation.
func (w *worker) observe(s Sample, passed, window time.Duration) bool {
	was := w.sample
	w.sample = s
	sign := s.Ended && !was.Ended || !s.Ended && w.showsLife(was, passed, window)
	w.silence += passed
	if sign {
		w.silence = 0
	}
	return sign
}

func (w *worker) showsLife(was Sample, passed, window time.Duration) bool {
	worked := w.worked(was, passed, window)
	beat := !w.sample.Heartbeat.IsZero() && !w.sample.Heartbeat.Equal(was.Heartbeat)
	if w.beating = beat || w.beating && !w.sample.Heartbeat.IsZero(); w.beating {
		return beat
	}
	return worked || w.sample.Logged > was.Logged
}

// worked reports whether processor time is a sign of life: whether enough of it was used within the window. The time falls when a
// descendant ends; accumulation then starts anew.
func (w *worker) worked(was Sample, passed, window time.Duration) bool {
	if w.sample.CPU < was.CPU {
		w.gathered, w.used = 0, w.sample.CPU
	}
	w.gathered += passed
	worked := float64(w.sample.CPU-w.used) > busy*float64(window)
	if worked || w.gathered >= window {
		w.gathered, w.used = 0, w.sample.CPU
	}
	return worked
}

// compare sorts workers that have been silent for longer first.
func (q Quiet) compare(other Quiet) int {
	switch {
	case q.For != other.For:
		return cmp.Compare(other.For, q.For)
	case q.Stopped && !other.Stopped:
		return -1
	case other.Stopped && !q.Stopped:
		return 1
	}
	return 0
}
