package distributed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"ddpbatch/checkpoint"
)

var errClosed = errors.New("the saver is closed")

// longWait is how long Save may wait for the save before it without a warning.
const longWait = time.Second

// Save saves the arrays as the checkpoint of a step; all ranks call it at the same step. It first waits for the previous save. If an
// earlier save has failed and no call has returned its error yet, Save returns it as an EarlierError and saves nothing. With Async it
// returns once the state has been copied, and the arrays may change again. Without Async it returns once the checkpoint is durable: in the
// shared folder, or, with a node-local tier, on the nodes' own disks, from which it is flushed to the shared folder. ctx is used for
// all of the save, including its background part, so it must outlive the call. An error is returned on every rank, with the same class, and
// names the rank where it happened.
func (s *Saver) Save(ctx context.Context, m Meta) error {
	began := time.Now()
	id, err := s.nextJob(ctx)
	if err != nil {
		return inSave(m.Step, err)
	}
	waited := time.Since(began)
	if waited > longWait && s.channel.isCoordinator() {
		s.log.Warn("saving takes longer than the time between saves: training had to wait", "step", m.Step, "waited", waited)
	}
	j := s.newJob(ctx, id, m, began)
	copied := time.Since(began) - waited
	s.submit(j)
	if !s.mode.Async {
		// The loop watches the context. Until the loop has ended it may read the live arrays, so do not return earlier.
		err = s.await(context.WithoutCancel(ctx), id, id, id+1)
	}
	s.stats.called(waited, copied)
	if err != nil {
		return inSave(m.Step, err)
	}
	return nil
}

// nextJob waits until the copies of the state are free, and returns the next job's number.
func (s *Saver) nextJob(ctx context.Context) (uint64, error) {
	id := s.last + 1
	return id, s.await(ctx, id, id-1, id)
}

// await waits until all ranks' copies up to the job complete are free again, and returns an error that is due by then. job is the caller's
// job.
func (s *Saver) await(ctx context.Context, job, complete, from uint64) error {
	if err := s.until(ctx, func() bool { return s.complete >= complete }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeDue(job, from)
}

// until waits until ok, which reads what mu guards, returns true.
func (s *Saver) until(ctx context.Context, ok func() bool) error {
	for {
		changed, over, err := s.look(ok)
		if over {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Saver) look(ok func() bool) (changed <-chan struct{}, over bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		s.returned = true
		return nil, true, s.broken
	}
	return s.changed, ok(), nil
}

// takeDue returns the errors that are due. An error of a job before the given one becomes an EarlierError. mu is held.
func (s *Saver) takeDue(job, from uint64) error {
	var later []dueError
	var now []error
	for _, d := range s.due {
		switch {
		case d.from > from:
			later = append(later, d)
		case d.job < job:
			now = append(now, &EarlierError{Step: d.step, Err: d.err})
		default:
			now = append(now, d.err)
		}
	}
	s.due = later
	if len(now) == 1 {
		return now[0]
	}
	return errors.Join(now...)
}

// newJob copies the state.
func (s *Saver) newJob(ctx context.Context, id uint64, m Meta, began time.Time) *job {
	m.Values, m.Metrics = maps.Clone(m.Values), maps.Clone(m.Metrics)
	j := &job{id: id, ctx: ctx, meta: m, began: began, pieces: s.mem.live, full: true}
	if s.mode.Copies == 0 {
		return j
	}
	s.mu.Lock()
	buffer, base, full := s.schedule.next(s.mode)
	s.mu.Unlock()
	j.copy, j.full, j.pieces = buffer, full, s.mem.take(buffer)
	if !full {
		j.pieces = s.mem.against(j.pieces, base)
	}
	return j
}

// submit passes a job to the loop, and starts the loop if it does not run.
func (s *Saver) submit(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.last = j, j.id
	select {
	case s.rounds.wake <- struct{}{}:
	default:
	}
	if !s.running {
		s.running = true
		go s.rounds.run()
	}
}

// Wait waits until everything is committed to the shared folder. It returns the newest checkpoint that this Saver has
// committed (the zero Info if there is none yet), and the error of a failed save that no call has returned yet. It is collective.
func (s *Saver) Wait(ctx context.Context) (checkpoint.Info, error) {
	err := s.until(ctx, func() bool { return !s.running })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.takeDue(s.last, s.last+2)
	}
	return s.newest, err
}

// submitted returns the job that Save has submitted, or nil.
func (s *Saver) submitted() *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.next
	s.next = nil
	return j
}

// retire ends the loop and returns true, unless a job of this rank is not finalized yet: then the next round waits for the ranks that have
// not entered that save.
func (s *Saver) retire(r *rounds) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil || r.newest.id > r.finalized {
		return false
	}
	s.running = false
	s.notify()
	return true
}

// notify wakes all waiting goroutines. mu is held.
func (s *Saver) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// note records a decision. j is the job that it finalizes, and own this rank's error with it. An error is returned by the
// first call of Save that no rank can have entered before it knew of this decision: the one after the next to
// complete. So the same call returns it on all ranks.
func (s *Saver) note(d decision, j *job, own error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := d.Finalized; o != nil {
		s.schedule.done(j, o.Failure == nil)
		if o.Info.Committed {
			s.newest = o.Info
			s.stats.committed(o, j, time.Since(j.began))
		}
		err := s.channel.brief(o.Failure, own)
		if err != nil && o.Replaced {
			if s.channel.isCoordinator() {
				s.log.Warn("checkpoint is lost with a node's own disk: a newer one takes its place", "step", j.meta.Step, "err", err)
			}
		} else if err != nil {
			s.due = append(s.due, dueError{from: s.complete + 2, job: j.id, step: j.meta.Step, err: err})
			if s.channel.isCoordinator() && (s.mode.Async || s.tier != nil) { // otherwise Save returns it at once
				s.log.Error("checkpoint is not saved", "step", j.meta.Step, "err", err)
			}
		}
	}
	s.complete = d.Complete
	s.notify()
}

// fail ends everything on this rank, because the ranks can no longer exchange.
func (s *Saver) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.running = err, false
	s.notify()
}

// EarlierError is the error of a save before the requested one, which has failed in the background. The call of Save
// that returns it has not saved its own step. The caller may call Save again, unless Err says that no save can succeed any more. The
// same call returns it on all ranks.
type EarlierError struct {
	Step int64 // the step that was not saved
	Err  error
}

func (e *EarlierError) Error() string { return fmt.Sprintf("the save of step %d: %v", e.Step, e.Err) }
func (e *EarlierError) Unwrap() error { return e.Err }

// inSave returns err as an error of Save at a step.
func inSave(step int64, err error) error {
	if _, ok := errors.AsType[*EarlierError](err); ok {
		return fmt.Errorf("before step %d: %w", step, err)
	}
	return fmt.Errorf("save step %d: %w", step, err)
}
