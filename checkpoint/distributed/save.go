package distributed

import (
	"context"
	"errors"
	"maps"
	"time"

	"ddpbatch/checkpoint"
)

var errClosed = errors.New("the saver is closed")

// longWait is how long Save may wait for the save before it without a warning.
const longWait = time.Second

// Save saves the arrays as the checkpoint of a step; all ranks call it at the same step. It first waits for the save before it, and
// returns an error of an earlier save that was not returned yet, as an EarlierError; nothing of this step is saved then. With Async it returns once the
// state has been copied, and the arrays may change again. Without, it returns once the checkpoint is durable: in the shared folder,
// or, where there is a node-local tier, on the nodes' own disks, from where it goes on to the shared folder. ctx counts for all of the
// save, its background part too, so it must outlive the call. An error is every rank's, of the same class, and names the rank.
func (s *Saver) Save(ctx context.Context, m Meta) error {
	began := time.Now()
	id, err := s.turn(ctx)
	if err != nil {
		return inSave(m.Step, err)
	}
	waited := time.Since(began)
	if waited > longWait && s.talk.lead() {
		s.log.Warn("saving takes longer than the time between saves: training has waited", "step", m.Step, "waited", waited)
	}
	j := s.newJob(ctx, id, m, began)
	copied := time.Since(began) - waited
	s.submit(j)
	if !s.mode.Async {
		// The loop minds the context; until it has ended it may read the live arrays.
		err = s.await(context.WithoutCancel(ctx), id, id, id+1)
	}
	s.stats.stall(waited, copied, time.Since(began))
	if err != nil {
		return inSave(m.Step, err)
	}
	return nil
}

// turn waits until the copies of the state are free, and returns the next job's number.
func (s *Saver) turn(ctx context.Context) (uint64, error) {
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
	return s.overdue(job, from)
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
		s.told = true
		return nil, true, s.broken
	}
	return s.changed, ok(), nil
}

// overdue returns the errors that are due. That of a job before the given one is an EarlierError. mu is held.
func (s *Saver) overdue(job, from uint64) error {
	var later []due
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
	buffer, base, full := s.chain.next(s.mode)
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
		err = s.overdue(s.last, s.last+2)
	}
	return s.newest, err
}
