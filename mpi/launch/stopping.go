package launch

import (
	"syscall"
	"time"
)

// stage is how far the stopping of a node's workers has gone. It only grows.
type stage int

const (
	running   stage = iota
	asked           // the workers agreed to stop: they end by themselves
	signalled       // they got TERM, or the signal that the agent got
	killed          // they got KILL
	abandoned       // even so the kernel does not end them
)

// stopping is where the workers are on the way, and when the next stage comes.
type stopping struct {
	stage stage
	next  <-chan time.Time
	due   time.Time // when next comes, where workers have a time to leave in
}

// within has the next stage come after d.
func (s *stopping) within(d time.Duration) {
	s.next, s.due = time.After(d), time.Now().Add(d)
}

// hurry leaves workers that are on their way out already no more time than s.cfg.Grace.
func (s *supervisor) hurry() {
	if (s.stop.stage == asked || s.stop.stage == signalled) && time.Until(s.stop.due) > s.cfg.Grace {
		s.stop.within(s.cfg.Grace)
	}
}

// raise takes this node's workers to a later stage. Each stage signals every
// worker's group once: a worker must bear a signal twice, but need not.
func (s *supervisor) raise(to stage, sig syscall.Signal) {
	if to <= s.stop.stage {
		return
	}
	s.stop.stage = to
	if s.alive == 0 {
		return
	}
	switch to {
	case asked:
		s.stop.within(s.cfg.Grace)
	case signalled:
		s.send(sig)
		s.send(syscall.SIGCONT) // for those that were stopped: nothing but KILL reaches them otherwise
		s.stop.within(s.cfg.Grace)
	case killed:
		s.send(syscall.SIGKILL)
		s.cfg.Log.Warn("workers did not end in time and are killed", "grace", s.cfg.Grace, "workers", s.alive)
		s.stop.next = time.After(killWait)
	case abandoned:
		s.cfg.Log.Error("killed workers do not end: the kernel holds them, perhaps for a file system that does not answer", "workers", s.alive)
		s.stop.next = nil
	}
}

func (s *supervisor) send(sig syscall.Signal) {
	for _, w := range s.workers {
		w.send(sig)
	}
}
