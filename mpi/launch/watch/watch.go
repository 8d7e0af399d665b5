package watch

import (
	"cmp"
	"slices"
	"time"
)

const (
	// busy is the share of a core below which a worker is taken for idle: waiting threads wake now and then. Gloo's, one in each process
	// group, does so a hundred times a second (gloo/transport/tcp/loop.cc), which is one per cent of a core of a slow virtual machine.
	busy = 0.02
	// window is how long processor time is gathered before it is judged: the kernel counts it in steps of 10 ms.
	window = 10 * time.Second
	// shares is into how many parts the timeout is divided: one part of silence counts for each observation at most, and
	// processor time is gathered for no longer than one.
	shares = 4
)

// Sample is what was seen of one worker.
type Sample struct {
	Heartbeat time.Time     // when its heartbeat file was last changed; zero: there is none
	Logged    int64         // bytes that it has written to its output
	CPU       time.Duration // processor time of it and its descendants
	Stopped   bool          // by SIGSTOP or a debugger
	Ended     bool          // nothing more is expected of it
}

// Watch finds out when all workers of a node have stopped giving signs of life. A worker that has changed its heartbeat file once
// gives a sign by changing it again, and by nothing else; of any other, output and processor time are signs, and of one whose file was
// removed. (A rank that waits for others on a GPU may be at full load: only a heartbeat tells of it.)
//
// One worker that gives signs is enough, as the others may wait for it. Not safe for concurrent use.
type Watch struct {
	timeout time.Duration
	last    time.Time // of the observation before
	workers []worker
	silence time.Duration // of all workers; at most a part of the timeout was added at each observation
}

// Quiet is a worker that is expected to give signs of life.
type Quiet struct {
	Worker  int           // its place among the samples
	For     time.Duration // since its last sign, as far as this process was there to see it
	Beats   bool          // it has used its heartbeat file, so that nothing else counts
	Stopped bool          // as of the last observation
}

// worker is what is remembered of one.
type worker struct {
	sample  Sample
	beating bool          // it uses its heartbeat file, which is there
	silence time.Duration // of this one

	gathered time.Duration // for how long processor time has been gathered
	used     time.Duration // it had used when that began
}

// New makes a Watch of workers that hang when none has given a sign for timeout.
func New(timeout time.Duration, workers int) *Watch {
	return &Watch{timeout: timeout, workers: make([]worker, workers)}
}

// Observe is told at now what was seen of the workers: as many samples as there are workers, in the same order every time. It is called
// several times in a timeout: of the time between two observations no more than a quarter of the timeout counts as
// silence, as for longer than that this process did not run either (a job that Slurm suspends is stopped
// as a whole). The first observation is where silence begins.
//
// It tells whether the workers have been silent for the timeout, even if all of them have ended: that one ends is a sign, too, and
// then no more is to come.
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
			w.silence = 0
		}
	}
	return w.silence >= w.timeout
}

// Quiet lists the workers that have not ended, the one that has been silent for longest at the beginning: of those that fell
// silent between the same two observations, the stopped ones first.
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

// observe tells whether a worker gave a sign since the observation before.
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

// worked tells whether processor time is a sign: whether enough of it was used within the window. It may fall, when a
// descendant ends, and is gathered anew from there.
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

// compare puts the worker first that has been silent for longer.
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
