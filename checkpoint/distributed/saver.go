package distributed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unsafe"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// Saver saves the arrays of a group of ranks together. Only one goroutine at a time may call its methods, except Stats and
// Estimate. All ranks must call Save, Wait, Resume and Begin in the same order.
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
	replicas *replicas // nil: shards are not copied to another node
	space    checkpoint.Space

	// Only set on rank 0, because they grow with the number of ranks.
	plan    plan
	writers []int

	// begun is set once Resume or Begin has recorded what this attempt resumes from: then what others have left is superseded.
	begun bool

	mu       sync.Mutex
	rounds   *rounds
	next     *job          // submitted and not yet taken by the loop
	last     uint64        // the job submitted last
	complete uint64        // all copies up to this job are free again
	running  bool          // the loop runs
	changed  chan struct{} // closed, and replaced, when any of these fields changes
	due      []dueError
	broken   error // the error that has ended everything
	returned bool  // a call has returned broken
	newest   checkpoint.Info
	schedule deltaSchedule
	stats    statsRecorder
}

// dueError is the error of a job. The next call of Save for job `from` or a later one returns it, on all ranks.
type dueError struct {
	from uint64
	job  uint64
	step int64 // of job
	err  error
}

// Group is the ranks that save together, rank 0 to Size()-1. All ranks call its collectives in the same order. A Saver
// calls them from one goroutine at a time, which may be a goroutine of its own, so the Group must not be used otherwise while the Saver
// lives. If a rank has died, or ctx is done, the methods must return an error instead of waiting forever.
type Group interface {
	Rank() int
	Size() int
	// Gather returns every rank's payload, by rank, on rank 0, and nil on the others. The result is a copy.
	Gather(ctx context.Context, payload []byte) ([][]byte, error)
	// Broadcast returns rank 0's payload on every rank; it ignores the others' arguments.
	Broadcast(ctx context.Context, payload []byte) ([]byte, error)
}

// Array is one named array of the training state, as one rank has it.
type Array struct {
	Name  string // 1 to 256 bytes of UTF-8 without control characters
	DType string // as checkpoint.Tensor has it: "float32", "bfloat16", "int64", ...
	Shape []int  // empty: a scalar
	// Data is the live memory, row-major and little-endian. The Saver reads it only inside Save, and never writes it. A copy would save
	// the same values again and again: see Float32.
	Data []byte
	// Replicated says that every rank that lists the name holds the same bytes, so that these ranks divide the writing.
	// Otherwise exactly one rank lists it.
	Replicated bool
}

// Float32 returns an Array of values. It is not a copy: its Data is the memory of values, which must stay where it is while the Saver
// lives. Data may also be read into, as a checkpoint.Target. It is little-endian on all machines on which ranks can form a group (see
// mpi.Init).
func Float32(name string, shape []int, values []float32) Array {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
	return Array{Name: name, DType: "float32", Shape: shape, Data: data}
}

// Options configure a Saver. These must be the same on all ranks: Async, Delta, Errors, and whether Local, Peers and Check are set. The
// others may differ. The zero value saves full checkpoints synchronously.
type Options struct {
	// Async lets Save return once the state is copied; encoding and writing go on in the background.
	Async bool
	// MaxMemory caps the buffers of this rank, in bytes: copies of the state and what encoding needs. 0: no cap. If any rank's cap
	// is too low for these options, all ranks save without deltas, or even without the copy, which is synchronous. The number of Workers is
	// not reduced, even if they alone take more; New then logs a warning. Encoders returns how many fit.
	MaxMemory int64
	// Delta is how many saves after each full one hold only the difference from it. 0: none. Deltas double the memory.
	Delta   int
	Workers int // goroutines that encode; 0: GOMAXPROCS
	// Local is a folder on a disk of the node (the same path on each node). A shard is written there first, which frees
	// the copy of the state for the next Save, and is flushed to the shared folder in the background. It needs a Dir with a run's name.
	// Below it each run has a folder that only this user can enter. If others have made that folder, or could, shards are written to the
	// shared folder directly, with a warning. With Local all checkpoints are full. Empty: no node-local tier.
	Local string
	// Peers, with Local, copies each shard to the disk of another node, too, until it has been flushed: the save then survives the loss
	// of one node. Each save then uses the network and that disk once more. Nil: no replicas.
	Peers Peers
	// Node is the name of this rank's node: ranks with the same name share Local. It is used only with Peers.
	Node string
	// Check checks what is about to be written, one piece at a time: data holds whole elements of the array name. It runs
	// on the copy, in the background. Its error fails the save on all ranks. Nil: no check.
	Check func(name string, data []byte) error
	// Errors are sentinels of the caller that Check and Resume's accept may return: errors.Is then
	// finds them on every rank, not only on the one that returned them. The list must be the same on all ranks.
	Errors []error
	FS     vfs.FS       // nil: the operating system's
	Log    *slog.Logger // nil: silent

	tick time.Duration // for tests: in place of roundEvery
}

// roundEvery is how long a busy rank lets the others wait before it enters the next round.
const roundEvery = 2 * time.Second

// Meta is the small part of a checkpoint. Rank 0's is used, except that Step must be the same on all ranks.
type Meta struct {
	Step    int64
	Values  map[string]json.RawMessage // as in checkpoint.State
	Metrics map[string]float64
	// Quick stores this save unencoded, as with the codec "none", whatever the folder's codec is: for when time is shorter than disk space,
	// as before a deadline. With a node-local tier each rank's own Quick is used for its own shard.
	Quick bool
}

// New plans which rank writes what, allocates the buffers, and checks on every rank that the folder can be written and that the arrays can
// be recorded. It is collective: if one rank fails, every rank gets an error. dir is rank 0's; the other ranks pass nil and learn from rank
// 0 where to write. dir must not be used for other saves while the Saver lives. The caller must call Resume or Begin next.
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

// Close waits for the save in flight and returns its error, if no call has returned it yet; cancel the context of Save to end it sooner.
// Close is not collective. The Saver cannot be used afterward; a second Close does nothing.
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
