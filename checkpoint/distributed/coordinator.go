package distributed

import (
	"errors"
	"fmt"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/failure"
)

// roundStatus is what a rank reports to rank 0 in a round.
type roundStatus struct {
	Newest uint64 `json:"newest"` // the number of the newest submitted job, and its step
	Step   int64  `json:"step"`
	Ready  uint64 `json:"ready"` // the newest job that this rank is ready to publish, or refuses to
	Safe   uint64 `json:"safe"`  // the newest job that is on the node's own disk
	// Refused is why Ready must not be published.
	Refused *failure.Failure `json:"refused,omitempty"`
	Writing *written         `json:"writing,omitempty"` // nil: nothing is being published
}

// written is how far a rank has written its shard of a publication.
type written struct {
	ID      uint64               `json:"id"`
	Over    bool                 `json:"over"`
	Shard   checkpoint.ShardInfo `json:"shard"`
	Failure *failure.Failure     `json:"failure,omitempty"`
}

// decision is rank 0's answer to a round.
type decision struct {
	Chosen    uint64       `json:"chosen,omitempty"` // this job will be published: keep its shard
	Start     *writeTicket `json:"start,omitempty"`
	Cancel    bool         `json:"cancel,omitempty"` // cancel the publication in progress
	Finalized *outcome     `json:"settled,omitempty"`
	Complete  uint64       `json:"complete"` // all ranks' copies up to this job are free again
	Idle      bool         `json:"idle"`     // nothing is being published, or ready to be
}

// writeTicket tells a rank to write its shard of a job.
type writeTicket struct {
	ID    uint64 `json:"id"`
	Draft []byte `json:"draft"`
	Quick bool   `json:"quick,omitempty"` // shards are not encoded
}

// outcome is how a job ended.
type outcome struct {
	ID      uint64           `json:"id"`
	Failure *failure.Failure `json:"failure,omitempty"`
	// Replaced says that a node's own disk failed, and that all ranks have a newer save in flight: the failure is only logged.
	Replaced bool            `json:"replaced,omitempty"`
	Info     checkpoint.Info `json:"info"` // valid if Committed
	Times    phases          `json:"times"`
}

// phases are the times of a save in seconds: of the slowest rank, and for the commit.
type phases struct {
	Encode float64 `json:"encode"`
	Write  float64 `json:"write"`
	Sync   float64 `json:"sync"`
	Commit float64 `json:"commit"`
}

// coordinator is the part of a publication that only rank 0 does: it makes the draft, waits until every rank has written, and commits. Each
// of these runs as a task beside the rounds.
type coordinator struct {
	phase  phase
	job    *job
	draft  *checkpoint.Draft
	over   bool             // the task of this phase has ended
	err    error            // rank 0's own error, of the draft or of the commit
	failed *failure.Failure // why what is being written must be removed
	shards []checkpoint.ShardInfo

	saved *checkpoint.Checkpoint // the result of the commit
	took  time.Duration
	base  *checkpoint.Checkpoint // the newest full one of this Saver, for deltas
}

type phase int

const (
	resting    phase = iota
	drafting         // the folder is being made
	gathering        // the ranks write their shards
	aborting         // a rank has failed, and no rank writes any more: rank 0 removes the files
	committing       // the manifest is being written
)

// begin enters a phase, with a task beside the rounds. The coordinator's fields must not be used until the task is over.
func (r *rounds) begin(p phase, task func() error) {
	l := &r.coordinator
	l.phase, l.over = p, false
	r.spawn(func() func() {
		err := task()
		return func() { l.err, l.over = err, true }
	})
}

// decide takes the next step that a round allows. After an error of decide, nothing more is published.
func (r *rounds) decide(all []roundStatus) (d decision, err error) {
	if err := checkSameStep(all); err != nil {
		return d, err
	}
	switch l := &r.coordinator; l.phase {
	case resting:
		r.choose(&d, all)
	case drafting:
		switch {
		case l.over && l.err != nil:
			r.finalize(&d, all, r.s.channel.failureOf(l.err))
		case l.over:
			d.Start = &writeTicket{ID: l.job.id, Draft: l.draft.Ticket(), Quick: l.job.meta.Quick}
			l.phase = gathering
		}
	case gathering:
		r.collect(&d, all)
	case aborting:
		if l.over {
			r.finalize(&d, all, l.failed)
		}
	case committing:
		if l.over {
			r.finalize(&d, all, r.s.channel.failureOf(l.err))
		}
	}
	finalized := r.finalized
	if d.Finalized != nil {
		finalized = d.Finalized.ID
	}
	d.Complete = max(finalized, least(all, func(s roundStatus) uint64 { return s.Safe }))
	d.Idle = r.coordinator.phase == resting && least(all, func(s roundStatus) uint64 { return s.Ready }) <= finalized
	return d, nil
}

// checkSameStep returns an error if ranks save different steps, which no Saver can repair.
func checkSameStep(all []roundStatus) error {
	steps := map[uint64]int{} // job -> the first rank that has submitted it
	for rank, s := range all {
		first, ok := steps[s.Newest]
		if !ok {
			steps[s.Newest] = rank
		} else if all[first].Step != s.Step {
			text := fmt.Sprintf("saves step %d, but rank %d saves step %d: all ranks must save the same step", s.Step,
				first, all[first].Step)
			return (&failure.Failure{Rank: rank, Text: text}).Elsewhere(nil)
		}
	}
	return nil
}

func least(all []roundStatus, of func(roundStatus) uint64) uint64 {
	low := of(all[0])
	for _, s := range all[1:] {
		low = min(low, of(s))
	}
	return low
}

// choose begins to publish the newest job that all ranks are ready for.
func (r *rounds) choose(d *decision, all []roundStatus) {
	id := least(all, func(s roundStatus) uint64 { return s.Ready })
	if id <= r.finalized {
		return
	}
	r.coordinator = coordinator{job: r.jobs[id], base: r.coordinator.base}
	l := &r.coordinator
	for _, s := range all {
		if s.Ready == id && s.Refused != nil {
			r.finalize(d, all, s.Refused)
			return
		}
	}
	d.Chosen = id
	r.begin(drafting, func() (err error) {
		l.draft, err = r.s.dir.NewDraft(l.job.ctx, l.job.meta.Step)
		return err
	})
}

// collect waits until no rank is writing. If one has failed, it cancels the others.
func (r *rounds) collect(d *decision, all []roundStatus) {
	l := &r.coordinator
	writing := 0
	var failed *failure.Failure
	for _, s := range all {
		switch w := s.Writing; {
		case w == nil || w.ID != l.job.id || !w.Over:
			writing++
		case w.Failure != nil && failed == nil:
			failed = w.Failure
		}
	}
	switch {
	case failed != nil && l.failed == nil:
		l.failed, d.Cancel = failed, true
	case writing > 0:
	case l.failed != nil:
		r.begin(aborting, func() error {
			l.draft.Abort()
			return nil
		})
	default:
		for _, rank := range r.s.writers {
			l.shards = append(l.shards, all[rank].Writing.Shard)
		}
		r.begin(committing, func() (err error) {
			began := time.Now()
			l.saved, err = r.commit(l.shards)
			l.took = time.Since(began)
			return err
		})
	}
}

// commit writes the commit record. If that fails it removes everything, unless the commit may have happened all the same.
func (r *rounds) commit(shards []checkpoint.ShardInfo) (*checkpoint.Checkpoint, error) {
	l := &r.coordinator
	m := l.job.meta
	c := checkpoint.Commit{World: r.s.channel.group.Size(), Values: m.Values, Metrics: m.Metrics,
		Tensors: r.s.plan.tensors(r.s.writers), Shards: shards}
	if !l.job.full && !m.Quick {
		c.Base = l.base
	}
	saved, err := l.draft.Commit(l.job.ctx, c)
	if err != nil {
		l.draft.Abort()
	}
	return saved, err
}

// finalize ends the publication.
func (r *rounds) finalize(d *decision, all []roundStatus, f *failure.Failure) {
	l := &r.coordinator
	l.phase = resting
	d.Finalized = &outcome{ID: l.job.id, Failure: f, Times: slowest(l.shards)}
	overtaken := least(all, func(s roundStatus) uint64 { return s.Newest }) > l.job.id
	d.Finalized.Replaced = f != nil && overtaken && errors.Is(r.s.channel.error(f, nil), errLocal)
	d.Finalized.Times.Commit = l.took.Seconds()
	if l.saved == nil {
		return
	}
	d.Finalized.Info = l.saved.Info() // also set beside a failure: the commit stands, but this attempt is superseded
	if f == nil && l.job.full && r.s.mode.deltas() {
		l.saved, l.base = l.base, l.saved
	}
	if l.saved != nil {
		l.saved.Close()
		l.saved = nil
	}
}

func slowest(shards []checkpoint.ShardInfo) (p phases) {
	for _, s := range shards {
		p.Encode, p.Write, p.Sync = max(p.Encode, s.Encode), max(p.Write, s.Write), max(p.Sync, s.Sync)
	}
	return p
}

// abandon gives up a publication that no decision will end. A commit that was tried stands, or its files are swept later.
func (l *coordinator) abandon() {
	if l.draft != nil && (l.phase == drafting || l.phase == gathering) {
		l.draft.Abort()
	}
	l.close()
}

// close closes the open checkpoints.
func (l *coordinator) close() {
	for _, c := range []*checkpoint.Checkpoint{l.saved, l.base} {
		if c != nil {
			c.Close() // it was only read from
		}
	}
	l.saved, l.base = nil, nil
}
