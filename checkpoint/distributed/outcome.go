package distributed

import (
	"time"
)

// submitted takes the job that Save has handed over, if there is one.
func (s *Saver) submitted() *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.next
	s.next = nil
	return j
}

// retire ends the loop, unless a job of this rank is not settled yet: then its next round waits for the ranks that have
// not come to that save.
func (s *Saver) retire(r *rounds) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil || r.newest.id > r.settled {
		return false
	}
	s.running = false
	s.notify()
	return true
}

// notify wakes who waits. mu is held.
func (s *Saver) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// note records a decision; own is this rank's error with what it settles, and j the job. An error is returned by the
// first call of Save that no rank can have entered before it knew of this decision: the one after the next that is
// complete. So it is returned by the same call on all ranks.
func (s *Saver) note(d decision, j *job, own error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := d.Settled; o != nil {
		s.chain.done(j, o.Failure == nil)
		if o.Info.Committed {
			s.newest = o.Info
			s.stats.settled(o, j, time.Since(j.began))
		}
		err := s.talk.brief(o.Failure, own)
		if err != nil && o.Replaced {
			if s.talk.lead() {
				s.log.Warn("checkpoint is lost with a node's own disk: a newer one takes its place", "step", j.meta.Step, "err", err)
			}
		} else if err != nil {
			s.due = append(s.due, due{from: s.complete + 2, job: j.id, step: j.meta.Step, err: err})
			s.stats.failed()
			if s.talk.lead() && (s.mode.Async || s.tier != nil) { // else Save returns it at once
				s.log.Error("checkpoint is not saved", "step", j.meta.Step, "err", err)
			}
		}
	}
	s.complete = d.Complete
	s.notify()
}

// fail ends everything on this rank: the ranks are not in step any more.
func (s *Saver) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.running = err, false
	s.notify()
}
