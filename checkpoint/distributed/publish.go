package distributed

import (
	"context"
	"slices"

	"ddpbatch/checkpoint"
)

// writing is this rank's shard of a publication.
type writing struct {
	written
	job      *job
	quick    bool
	draft    *checkpoint.Draft
	cancel   context.CancelFunc
	reported bool // rank 0 may know that the shard is good, and commit
	err      error
}

// start begins to write this rank's shard of what is published.
func (r *rounds) start(t ticket) {
	j, lead := r.jobs[t.ID], r.s.talk.lead()
	ctx, cancel := context.WithCancel(j.ctx)
	w := &writing{written: written{ID: t.ID}, job: j, cancel: cancel, quick: t.Quick}
	if lead && !t.Quick {
		w.draft = r.lead.draft
	}
	r.writing = w
	r.spawn(func() func() {
		shard, err := r.s.write(ctx, w, t.Draft)
		if err == nil {
			err = ctx.Err() // too late: it is not wanted any more
		}
		if err != nil && w.draft != nil && !lead {
			w.draft.Abort() // rank 0 cleans up after all; but it may be rank 0 that is gone
		}
		return func() { w.Over, w.Shard, w.err, w.Failure = true, shard, err, r.s.talk.failureOf(err) }
	})
}

// settle ends a job, and returns it and what went wrong with it on this rank.
func (r *rounds) settle(o *outcome) (j *job, own error) {
	if o == nil {
		return nil, nil
	}
	r.settled, r.chosen = o.ID, 0
	j = r.jobs[o.ID]
	own = j.refused
	if w := r.writing; w != nil {
		w.cancel()
		own = w.err
		r.writing = nil
	}
	if r.s.talk.lead() && r.lead.err != nil {
		own = r.lead.err
	}
	if r.stranded != nil {
		r.s.discard(r.stranded)
	}
	if r.stranded = j; o.Failure == nil {
		r.s.discard(j)
		r.stranded = nil
	}
	return j, own
}

// forget lets go of jobs that nobody can publish any more: those settled, and those that newer ones have replaced.
func (r *rounds) forget(complete uint64) {
	for id, j := range r.jobs {
		if id <= r.settled {
			delete(r.jobs, id)
		} else if id < complete && id != r.chosen {
			r.s.discard(j)
			delete(r.jobs, id)
		}
	}
}

// write puts this rank's shard, if it has one, into the draft of a publication: from the node's own disk, or from memory.
func (s *Saver) write(ctx context.Context, w *writing, ticket []byte) (checkpoint.ShardInfo, error) {
	if s.shard.none() {
		return checkpoint.ShardInfo{}, nil
	}
	dir, pieces := s.dir, w.job.pieces
	if w.quick {
		dir, pieces = s.quick, whole(pieces)
	}
	if w.draft == nil {
		draft, err := dir.JoinDraft(ticket)
		if err != nil {
			return checkpoint.ShardInfo{}, err
		}
		w.draft = draft
	}
	if w.job.local != nil {
		return s.tier.drain(ctx, w.job.local, w.draft)
	}
	return w.draft.WriteShard(ctx, s.shard.i, s.shard.of, pieces)
}

// whole is pieces without what they would differ from.
func whole(pieces []checkpoint.Piece) []checkpoint.Piece {
	pieces = slices.Clone(pieces)
	for i := range pieces {
		pieces[i].Base = nil
	}
	return pieces
}
