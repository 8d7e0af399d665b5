package distributed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// Saver saves the arrays of a group of ranks together. Its methods are called by one goroutine at a time, except Stats and
// Estimate; Save, Wait, Resume and Begin by all ranks in the same order.
type Saver struct {
	channel *channel
	dir     *checkpoint.Dir
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
	due      []dueError
	broken   error // what has ended everything
	returned bool  // a call has returned it
	newest   checkpoint.Info
	schedule deltaSchedule
	stats    statsRecorder
}

// dueError is the error of a job that the next call of Save from job `from` on returns, on all ranks alike.
type dueError struct {
	from uint64
	job  uint64
	step int64 // of job
	err  error
}

// Group is the ranks that save together, rank 0 to Size()-1. Its collectives are called in the same order by all ranks; a Saver
// calls them from one goroutine at a time, which need not be the caller's, so nobody else may use the Group while the Saver lives.
// Where a rank has died, or ctx is done, they return an error instead of waiting for ever.
type Group interface {
	Rank() int
	Size() int
	// Gather returns every rank's payload, by rank, on rank 0; nil on the others. It is a copy.
	Gather(ctx context.Context, payload []byte) ([][]byte, error)
	// Broadcast returns rank 0's payload on every rank; the others' arguments do not count.
	Broadcast(ctx context.Context, payload []byte) ([]byte, error)
}

// Array is one named array of the training state, as one rank has it.
type Array struct {
	Name  string // 1 to 256 bytes of UTF-8 without control characters
	DType string // as checkpoint.Tensor has it: "float32", "bfloat16", "int64", ...
	Shape []int  // empty: a scalar
	// Data is the live memory, row-major and little-endian. The Saver reads it inside Save only, and never writes it.
	Data []byte
	// Replicated says that every rank that lists the name holds the same bytes: they share the work of writing it.
	// Otherwise exactly one rank lists it.
	Replicated bool
}

// Options say how a Saver works. The same on all ranks must be Async, Delta, whether Local, Peers and Check are set, and Errors; all else
// is each rank's own. The zero value saves full checkpoints synchronously.
type Options struct {
	// Async lets Save return once the state is copied; encoding and writing go on in the background.
	Async bool
	// MaxMemory caps the buffers of this rank, in bytes: copies of the state and what encoding needs. 0: no cap. Where one rank's cap
	// is too low for what is asked for, all ranks do without deltas, or without the copy: they then save synchronously. Workers are as many
	// as asked for even where they alone take more, which is warned of: Encoders says how many fit.
	MaxMemory int64
	// Delta is how many saves after each full one hold only the difference to it. 0: none. It doubles the memory.
	Delta   int
	Workers int // goroutines that encode; 0: GOMAXPROCS
	// Local is a folder on a disk of the node (each node its own, the same path). A shard is written there first, which frees
	// the copy of the state for the next Save, and is flushed to the shared folder in the background. It needs a Dir with a run's name.
	// Below it each run has a folder that only this user can enter; where others have put one there, or could, the shared folder is written
	// to directly, with a warning. Empty: none. With it all checkpoints are full.
	Local string
	// Peers, with Local, has each shard copied to the disk of another node, too, until it has been flushed: the save then outlives the loss
	// of one node. It takes the network and that disk once more for each save. Nil: no replicas.
	Peers Peers
	// Node is the name of this rank's node: ranks with the same one share Local. With Peers only.
	Node string
	// Check looks at what is about to be written, one piece at a time: data are whole elements of the array name. It runs
	// on the copy, in the background. Its error fails the save on all ranks. Nil: none.
	Check func(name string, data []byte) error
	// Errors are sentinels of the caller's own which Check and Resume's accept may return: errors.Is then
	// holds on every rank, not just on the one that returned it. The same list on all ranks.
	Errors []error
	FS     vfs.FS       // nil: the operating system's
	Log    *slog.Logger // nil: silent

	tick time.Duration // tests: instead of roundEvery
}

// roundEvery is how long a rank that is still writing lets the others wait before it says so.
const roundEvery = 2 * time.Second

// Meta is the small part of a checkpoint. Rank 0's counts, except that Step must be the same on all ranks.
type Meta struct {
	Step    int64
	Values  map[string]json.RawMessage // as checkpoint.State
	Metrics map[string]float64
	// Quick has this save written as it is, as with the codec "none", whatever the folder's: where time is shorter than disk space, as
	// before a deadline. With a node-local tier each rank's own counts, for its own shard.
	Quick bool
}

// New plans who writes what, allocates the buffers and proves from every rank that the folder can be written, and that the arrays can be
// recorded. It is collective: every rank gets an error if one does. dir is rank 0's; the other ranks pass nil and learn from rank 0 where
// to write. Nobody else may use dir for saving while the Saver lives. Resume or Begin comes next.
func New(ctx context.Context, group Group, dir *checkpoint.Dir, arrays []Array, o Options) (*Saver, error) {
	s := &Saver{
		channel: newChannel(group, o.Errors), dir: dir, o: o, log: o.Log, changed: make(chan struct{}),
		stats: statsRecorder{now: Stats{Step: -1}},
	}
	if s.o.FS == nil {
		s.o.FS = vfs.OS{}
	}
	if s.o.tick <= 0 {
		s.o.tick = roundEvery
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.rounds, s.schedule = newRounds(s), newDeltaSchedule()
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
	s.rounds.coordinator.close()
	err := s.takeDue(s.last, s.last+2)
	if s.broken == nil {
		s.tidy()
	} else if !s.returned {
		err = errors.Join(err, s.broken)
	}
	s.broken, s.returned = errClosed, true
	return err
}
