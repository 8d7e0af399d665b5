package output

// Mode says which of a worker's two streams something is for, with torchrun's numbers.
type Mode uint8

// The modes. They are bits.
const (
	None Mode = 0
	Out  Mode = 1
	Err  Mode = 2
	Both Mode = Out | Err
)

// Map gives every local rank a mode: All, where Ranks does not name it.
type Map struct {
	All   Mode         `json:"all"`
	Ranks map[int]Mode `json:"ranks,omitempty"` // by local rank
}

// Of is the mode of one local rank.
func (m Map) Of(local int) Mode {
	if mode, ok := m.Ranks[local]; ok {
		return mode
	}
	return m.All
}

// Config says where the workers' output goes. The zero value is ddpbatch's own way: a file for each
// stream, where there is a folder for them, and the console, with a prefix where Prefix says so.
type Config struct {
	// Redirects are streams that go to their file only, Tees those that go to file and console
	// (torchrun's -r and -t). Streams in neither go to both, as ddpbatch does by itself.
	Redirects, Tees Map

	LocalRanks []int // local ranks whose output the console shows; empty: all
	Ranks      []int // global ranks whose output the console shows; empty: all

	// Prefix begins each line on the console: a text with ${host}, ${rank}, ${local_rank} and ${role_name};
	// "": none. With PrefixSeveral, there is also none where the world has one rank, whose lines need no name.
	Prefix        string
	PrefixSeveral bool

	// Lines that hold one of these go, once more, to a file of all ranks (torchrun's --duplicate-stdout-filters and
	// --duplicate-stderr-filters).
	OutFilters, ErrFilters []string
}
