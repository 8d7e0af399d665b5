package distributed

import (
	"log/slog"
	"time"

	"ddpbatch/internal/vfs"
)

// roundEvery is how long a rank that is still writing lets the others wait before it says so.
const roundEvery = 2 * time.Second

// Options say how a Saver works. The same on all ranks must be Async, Delta, whether Local, Peers and Check are set, and Errors; all else is each
// rank's own. The zero value saves full checkpoints synchronously.
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
	// the copy of the state for the next Save, and is drained to the shared folder in the background. It needs a Dir with a run's name. Below it
	// each run has a folder that only this user can enter; where others have put one there, or could, the shared folder is written to
	// directly, with a warning. Empty: none. With it all checkpoints are full.
	Local string
	// Peers, with Local, has each shard copied to the disk of another node, too, until it has been drained: the save then outlives the loss of one node.
	// It takes the network and that disk once more for each save. Nil: no replicas.
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
