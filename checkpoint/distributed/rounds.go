package distributed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"ddpbatch/checkpoint"
)

// rounds is one rank's side of the saves in flight. While there are any, all ranks exchange again and again: every rank reports to rank 0
// how far it is, and rank 0 answers with one decision for all. A rank enters the next round as soon as it has news, or nothing to do; a
// rank that is still busy enters it after a tick. So rank 0 knows at once when the last rank is done, no collective waits for a slow
// disk, and no rank looks at the file system to find out what another does. All fields belong to the loop's goroutine.
//
// Jobs are numbered as they are submitted. These counters say how far each stage has come; none decreases:
//
//	counter          what has come so far                           who advances it               agrees on all ranks
//	Saver.last       submitted by Save                              the caller                    no: ranks enter Save at different times
//	newest.id        taken by the loop                              take                          no
//	ready            checked, and staged if there is a tier         the task of take              no
//	safe             staged on the node's own disk, or no shard     the task of take              no
//	chosen           is being published; 0: none                    rank 0: choose                yes, after each round
//	finalized        published, failed or overtaken                 rank 0: finalize              yes, after each round
//	Saver.complete   the copy of the state is free on all ranks     rank 0: decide                yes, after each round
//
// At all times finalized <= complete, safe <= ready <= newest.id <= last <= complete+1,
// and chosen is 0 or between finalized and every rank's ready.
//
// Three points need care: which call returns an error on all ranks (Saver.note); what may be removed when the group fails during a
// publication (stop); what a rank keeps of jobs that a newer one overtakes (forget).
type rounds struct {
	s     *Saver
	wake  chan struct{} // signals that a job was submitted
	ended chan func()   // what to do after a task that has ended
	tasks int           // running
	news  bool

	newest    *job
	jobs      map[uint64]*job // those that may still be published
	ready     uint64
	safe      uint64
	chosen    uint64
	finalized uint64
	// uncommitted is the job finalized last, if it could not be published: its shard stays on the node's own disk until there is a newer
	// one.
	uncommitted *job
	writing     *writing                      // nil: nothing is being published
	copying     map[uint64]context.CancelFunc // exchanges of replicas, by job; those of one job end before the next begin
	stopped     bool                          // by stop: no more exchanges begin
	coordinator coordinator                   // used on rank 0
}

func newRounds(s *Saver) *rounds {
	return &rounds{s: s, wake: make(chan struct{}, 1), ended: make(chan func()), jobs: map[uint64]*job{},
		copying: map[uint64]context.CancelFunc{}}
}

// run exchanges with the other ranks until all jobs of this rank are finalized and nothing is in progress.
func (r *rounds) run() {
	for {
		idle, err := r.round()
		if err != nil {
			r.stop(err)
			return
		}
		if !idle {
			continue
		}
		if r.newest.id == r.finalized {
			r.endCopying()
		}
		if r.s.retire(r) {
			return
		}
	}
}

// round does one exchange.
func (r *rounds) round() (idle bool, err error) {
	r.await()
	ctx, c := r.newest.ctx, r.s.channel
	if w := r.writing; w != nil && w.Over && w.err == nil {
		w.reported = true // even if the exchange fails here, rank 0 may have received the report
	}
	d, err := exchange(ctx, c, r.status(), nil, r.decide)
	if err != nil {
		return false, err
	}
	if !r.knows(d) {
		return false, errDecision
	}
	r.apply(d)
	return d.Idle, nil
}

var errDecision = errors.New("rank 0 decides about a save that this rank does not have in flight")

// knows reports whether this rank has the jobs that a decision is about.
func (r *rounds) knows(d decision) bool {
	if d.Start != nil && (r.jobs[d.Start.ID] == nil || r.writing != nil) || d.Finalized != nil && r.jobs[d.Finalized.ID] == nil {
		return false
	}
	return !d.Cancel || r.writing != nil
}

// await returns once there is something to report, there is nothing to wait for, or a tick has passed.
func (r *rounds) await() {
	r.take()
	tick := time.NewTimer(r.s.o.tick)
	defer tick.Stop()
	for !r.news && r.tasks > len(r.copying) { // do not wait for copies alone: another rank may be in the next round already
		select {
		case then := <-r.ended:
			r.over(then)
		case <-r.wake:
			r.take()
		case <-tick.C:
			return
		}
	}
	r.news = false
}

// spawn runs a task beside the rounds. The loop calls the function that the task returns.
func (r *rounds) spawn(task func() (then func())) {
	r.tasks++
	go func() { r.ended <- task() }()
}

func (r *rounds) over(then func()) {
	r.tasks--
	then()
	r.news = true
}

// take fetches the job that Save has submitted and stages it: it checks it, and writes it to the node's own disk if there is one.
func (r *rounds) take() {
	j := r.s.submitted()
	if j == nil {
		return
	}
	r.newest, r.jobs[j.id], r.news = j, j, true
	r.spawn(func() func() {
		j.refused = j.check(r.s.o.Check)
		if j.refused == nil {
			j.local = r.s.stage(j)
		}
		return func() {
			r.ready = j.id
			if j.local != nil || j.refused == nil && r.s.shard.none() {
				r.safe = j.id
			}
			r.replicate(j)
		}
	})
}

func (r *rounds) status() roundStatus {
	s := roundStatus{Newest: r.newest.id, Step: r.newest.meta.Step, Ready: r.ready, Safe: r.safe}
	if j := r.jobs[r.ready]; j != nil {
		s.Refused = r.s.channel.failureOf(j.refused)
	}
	if r.writing != nil {
		s.Writing = &r.writing.written
	}
	return s
}

// apply does what rank 0 has decided.
func (r *rounds) apply(d decision) {
	if d.Chosen != 0 {
		r.chosen = d.Chosen
	}
	if d.Start != nil {
		r.start(*d.Start)
	}
	if d.Cancel {
		r.writing.cancel()
	}
	j, own := r.endJob(d.Finalized)
	r.s.note(d, j, own)
	r.forget(d.Complete)
}

// stop ends everything after the group has failed. It keeps a shard that rank 0 may know of, because the commit may have happened.
func (r *rounds) stop(err error) {
	w := r.writing
	if w != nil {
		w.cancel()
	}
	r.stopped = true
	for _, cancel := range r.copying {
		cancel()
	}
	for r.tasks > 0 {
		r.over(<-r.ended)
	}
	switch {
	case r.s.channel.isCoordinator():
		r.coordinator.abandon()
	case w != nil && w.draft != nil && w.err == nil && !w.reported:
		w.draft.Abort()
	}
	r.s.fail(err)
}

// writing is this rank's shard of a publication.
type writing struct {
	written
	job      *job
	quick    bool
	draft    *checkpoint.Draft
	cancel   context.CancelFunc
	reported bool // rank 0 may know that the shard is good, and may commit
	err      error
}

// start begins to write this rank's shard of a publication.
func (r *rounds) start(t writeTicket) {
	j, coordinator := r.jobs[t.ID], r.s.channel.isCoordinator()
	ctx, cancel := context.WithCancel(j.ctx)
	w := &writing{written: written{ID: t.ID}, job: j, cancel: cancel, quick: t.Quick}
	if coordinator && !t.Quick {
		w.draft = r.coordinator.draft
	}
	r.writing = w
	r.spawn(func() func() {
		shard, err := r.s.write(ctx, w, t.Draft)
		if err == nil {
			err = ctx.Err() // too late: the shard is not needed any more
		}
		if err != nil && w.draft != nil && !coordinator {
			w.draft.Abort() // rank 0 removes everything later, unless rank 0 is the one that is gone
		}
		return func() { w.Over, w.Shard, w.err, w.Failure = true, shard, err, r.s.channel.failureOf(err) }
	})
}

// endJob ends a job. It returns the job, and this rank's error with it.
func (r *rounds) endJob(o *outcome) (j *job, own error) {
	if o == nil {
		return nil, nil
	}
	r.finalized, r.chosen = o.ID, 0
	j = r.jobs[o.ID]
	own = j.refused
	if w := r.writing; w != nil {
		w.cancel()
		own = w.err
		r.writing = nil
	}
	if r.s.channel.isCoordinator() && r.coordinator.err != nil {
		own = r.coordinator.err
	}
	if r.uncommitted != nil {
		r.s.discard(r.uncommitted)
	}
	if r.uncommitted = j; o.Failure == nil {
		r.s.discard(j)
		r.uncommitted = nil
	}
	return j, own
}

// forget drops jobs that can no longer be published: those finalized, and those that newer ones have replaced.
func (r *rounds) forget(complete uint64) {
	for id, j := range r.jobs {
		if id <= r.finalized {
			delete(r.jobs, id)
		} else if id < complete && id != r.chosen {
			r.s.discard(j)
			delete(r.jobs, id)
		}
	}
}

// write writes this rank's shard, if it has one, into the draft of a publication: from the node's own disk, or from memory.
func (s *Saver) write(ctx context.Context, w *writing, ticket []byte) (checkpoint.ShardInfo, error) {
	if s.shard.none() {
		return checkpoint.ShardInfo{}, nil
	}
	dir, pieces := s.dir, w.job.pieces
	if w.quick {
		dir, pieces = s.quick, withoutBases(pieces)
	}
	if w.draft == nil {
		draft, err := dir.JoinDraft(ticket)
		if err != nil {
			return checkpoint.ShardInfo{}, err
		}
		w.draft = draft
	}
	if w.job.local != nil {
		return s.tier.flush(ctx, w.job.local, w.draft)
	}
	return w.draft.WriteShard(ctx, s.shard.i, s.shard.of, pieces)
}

// withoutBases returns pieces without their bases.
func withoutBases(pieces []checkpoint.Piece) []checkpoint.Piece {
	pieces = slices.Clone(pieces)
	for i := range pieces {
		pieces[i].Base = nil
	}
	return pieces
}

// job is one save on this rank, from Save until it is finalized.
type job struct {
	id     uint64          // 1, 2, ...; the same on all ranks
	ctx    context.Context // of the call of Save; the background part uses it, too
	meta   Meta
	began  time.Time
	pieces []checkpoint.Piece // in the copy, or in the live arrays
	copy   int                // the number of the copy that holds pieces
	full   bool

	// Set by the task that stages it; read after that has ended.
	refused error  // what Check returned
	local   *local // the shard on the node's own disk; nil: it is written from pieces

	kept    []*local    // replicas of other nodes' shards; set when their exchange is over
	dropped atomic.Bool // the files on the nodes' own disks are no longer needed
}

// check calls the caller's check on all pieces.
func (j *job) check(f func(name string, data []byte) error) error {
	if f == nil {
		return nil
	}
	for _, p := range j.pieces {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		if err := f(p.Tensor, p.Data); err != nil {
			return fmt.Errorf("check of step %d: %s: %w", j.meta.Step, p.Tensor, err)
		}
	}
	return nil
}
