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

// Save saves the arrays as the checkpoint of a step; all ranks call it at the same step. It first waits for the save before it, and
// returns an error of an earlier save that was not returned yet, as an EarlierError; nothing of this step is saved then. With Async it
// returns once the state has been copied, and the arrays may change again. Without, it returns once the checkpoint is durable: in the
// shared folder, or, where there is a node-local tier, on the nodes' own disks, from where it goes on to the shared folder. ctx counts for
// all of the save, its background part too, so it must outlive the call. An error is every rank's, of the same class, and names the rank.
func (s *Saver) Save(ctx context.Context, m Meta) error {
	began := time.Now()
	id, err := s.nextJob(ctx)
	if err != nil {
		return inSave(m.Step, err)
	}
	waited := time.Since(began)
	if waited > longWait && s.channel.isCoordinator() {
		s.log.Warn("saving takes longer than the time between saves: training has waited", "step", m.Step, "waited", waited)
	}
	j := s.newJob(ctx, id, m, began)
	copied := time.Since(began) - waited
	s.submit(j)
	if !s.mode.Async {
		// The loop minds the context; until it has ended it may read the live arrays.
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

// await waits until all ranks' copies up to a job are free again, and returns an error that is due by then. job is the one that it is for.
func (s *Saver) await(ctx context.Context, job, complete, from uint64) error {
	if err := s.until(ctx, func() bool { return s.complete >= complete }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeDue(job, from)
}

// until waits for a condition on what mu guards.
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

// takeDue returns the errors that are due. That of a job before the given one is an EarlierError. mu is held.
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

// submit hands a job to the loop, and starts that where it does not run.
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
// committed (the zero Info: none yet), and the error of a save that was not returned yet. It is collective.
func (s *Saver) Wait(ctx context.Context) (checkpoint.Info, error) {
	err := s.until(ctx, func() bool { return !s.running })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.takeDue(s.last, s.last+2)
	}
	return s.newest, err
}

// submitted takes the job that Save has handed over, if there is one.
func (s *Saver) submitted() *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.next
	s.next = nil
	return j
}

// retire ends the loop, unless a job of this rank is not finalized yet: then its next round waits for the ranks that have
// not come to that save.
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

// notify wakes who waits. mu is held.
func (s *Saver) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// note records a decision; own is this rank's error with what it finalizes, and j the job. An error is returned by the
// first call of Save that no rank can have entered before it knew of this decision: the one after the next that is
// complete. So it is returned by the same call on all ranks.
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
			if s.channel.isCoordinator() && (s.mode.Async || s.tier != nil) { // else Save returns it at once
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

// EarlierError is the error of a save before the one that was asked for: it has failed in the background, and nobody knew of it. Save,
// which returns it, has saved nothing of its own step; called again, it does, unless Err says that no save can succeed any more. It is
// returned by the same call on all ranks.
type EarlierError struct {
	Step int64 // that was not saved
	Err  error
}

func (e *EarlierError) Error() string { return fmt.Sprintf("the save of step %d: %v", e.Step, e.Err) }
func (e *EarlierError) Unwrap() error { return e.Err }

// inSave is an error that Save returns at a step.
func inSave(step int64, err error) error {
	if _, ok := errors.AsType[*EarlierError](err); ok {
		return fmt.Errorf("before step %d: %w", step, err)
	}
	return fmt.Errorf("save step %d: %w", step, err)
}
