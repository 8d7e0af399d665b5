package distributed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// Saver saves the arrays of a group of ranks together. Its methods are called by one goroutine at a time, except Stats and
// Estimate; Save, Wait, Resume and Begin by all ranks in the same order.
type Saver struct {
	talk *talk
	dir  *checkpoint.Dir
	// quick is the same folder, for shards that are not encoded (Meta.Quick).
	quick    *checkpoint.Dir
	o        Options
	log      *slog.Logger
	shard    shardNumber
	mode     mode
	mem      *copies
	tier     *tier     // nil: no node-local tier
	replicas *replicas // nil: no shard is copied to another node
	space    checkpoint.Space

	// Rank 0's alone, as they grow with the number of ranks.
	plan    plan
	writers []int

	// begun: Resume or Begin has recorded what this attempt goes on from, so that nobody goes on from what others have left.
	begun bool

	mu       sync.Mutex
	rounds   *rounds
	next     *job          // submitted and not taken by the loop yet
	last     uint64        // the job submitted last
	complete uint64        // all copies up to this job are free again
	running  bool          // the loop
	changed  chan struct{} // closed, and replaced, when any of this changes
	due      []due
	broken   error // what has ended everything
	told     bool  // a call has returned it
	newest   checkpoint.Info
	chain    chain
	stats    figures
}

// due is the error of a job that the next call of Save from job `from` on returns, on all ranks alike.
type due struct {
	from uint64
	job  uint64
	step int64 // of job
	err  error
}

// Meta is the small part of a checkpoint. Rank 0's counts, except that Step must be the same on all ranks.
type Meta struct {
	Step    int64
	Values  map[string]json.RawMessage // as checkpoint.State
	Metrics map[string]float64
	// Quick has this save written as it is, as with the codec "none", whatever the folder's: where time is shorter than disk space, as before
	// a deadline. With a node-local tier each rank's own counts, for its own shard.
	Quick bool
}

// New plans who writes what, allocates the buffers and proves from every rank that the folder can be written, and that the arrays can be
// recorded. It is collective: every rank gets an error if one does. dir is rank 0's; the other ranks pass nil and learn from rank 0 where
// to write. Nobody else may use dir for saving while the Saver lives. Resume or Begin comes next.
func New(ctx context.Context, group Group, dir *checkpoint.Dir, arrays []Array, o Options) (*Saver, error) {
	s := &Saver{talk: newTalk(group, o.Errors), dir: dir, o: o, log: o.Log, changed: make(chan struct{}), stats: newFigures()}
	if s.o.FS == nil {
		s.o.FS = vfs.OS{}
	}
	if s.o.tick <= 0 {
		s.o.tick = roundEvery
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.rounds, s.chain = newRounds(s), newChain()
	if err := s.open(ctx, arrays); err != nil {
		return nil, fmt.Errorf("prepare checkpoints: %w", err)
	}
	return s, nil
}

// Close waits for the save in flight and returns its error, if nobody has seen it yet; cancel the context of Save to end it sooner.
// Not collective. The Saver is of no use afterwards; a second Close does nothing.
func (s *Saver) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.running {
		changed := s.changed
		s.mu.Unlock()
		<-changed
		s.mu.Lock()
	}
	s.rounds.lead.close()
	err := s.overdue(s.last, s.last+2)
	if s.broken == nil {
		s.tidy()
	} else if !s.told {
		err = errors.Join(err, s.broken)
	}
	s.broken, s.told = errClosed, true
	return err
}
