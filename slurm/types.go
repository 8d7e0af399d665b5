package slurm

import "errors"

// ErrNotInSlurm: the environment holds no Slurm job.
var ErrNotInSlurm = errors.New("not inside a Slurm job")

// Option is one long option of sbatch: Name without the dashes ("gpus-per-node"),
// Value as one word, Flag where it takes none (then Value is empty).
type Option struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	Flag  bool   `json:"flag,omitempty"`
}

// Options is the [slurm] table of a job.
type Options struct {
	List  []Option `json:"list,omitempty"`  // in the file's order
	Extra []string `json:"extra,omitempty"` // each one word, beginning with -
	Skip  []string `json:"skip,omitempty"`  // option names, with or without dashes, left out of everything that is rendered
}

// Get returns the value of the option called name.
func (o Options) Get(name string) (value string, ok bool) { panic("stub") }

// ParseOption checks one key of [slurm] (job.toml's spelling: gpus_per_node) and its value, as
// the TOML decoder gives it (string, int64, bool, float64). The error names the key
// and says what to write instead.
func ParseOption(key string, value any) (Option, error) { panic("stub") }

// OptionKeys lists all keys that ParseOption knows, in job.toml's spelling, sorted.
func OptionKeys() []string { panic("stub") }

// Setup is the [setup] table less env, which travels in the spec file.
type Setup struct {
	Modules []string `json:"modules,omitempty"`
	Venv    string   `json:"venv,omitempty"`
	Conda   string   `json:"conda,omitempty"`
	Script  []string `json:"script,omitempty"` // the user's own shell lines, verbatim by intention
}

// Script is what a batch script is rendered from.
type Script struct {
	Name        string // job name
	RunDir      string // absolute
	WorkDir     string // absolute
	Options     Options
	Nodes       int
	Mode        string // "agent": one task a node | "task": one task a rank
	Nproc       int    // ranks a node; the largest where nodes differ; 0: only the node knows
	CPUsPerRank int    // 0: not asked
	Setup       Setup
}

// Render fills the template (templates.Batch or a user's own).
func (s Script) Render(template string) (string, error) { panic("stub") }
