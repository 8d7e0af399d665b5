package slurm

import "strings"

// Option is one long option of sbatch: Name without the dashes ("gpus-per-node"),
// Value as one word, Flag where it takes none (then Value is empty). An Option without
// a Name asks for nothing: it is what "hold = false" stands for.
type Option struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	Flag  bool   `json:"flag,omitempty"`
}

// word is the option as sbatch takes it.
func (o Option) word() string {
	if o.Flag {
		return "--" + o.Name
	}
	return "--" + o.Name + "=" + o.Value
}

// Options is the [slurm] table of a job.
type Options struct {
	List  []Option `json:"list,omitempty"`  // in the file's order
	Extra []string `json:"extra,omitempty"` // each one word, beginning with -
	Skip  []string `json:"skip,omitempty"`  // option names, with or without dashes, left out of everything that is rendered
}

// Get returns the value of the option called name, which may be spelled as sbatch does
// ("gpus-per-node") or as job.toml does; a flag's value is empty. Where an option stands
// twice the later one counts, as it does for sbatch. Skip has no say here: it is about what
// is rendered, not about what the job wants.
func (o Options) Get(name string) (value string, ok bool) {
	name = optionName(name)
	for _, option := range o.List {
		if option.Name == name && name != "" {
			value, ok = option.Value, true
		}
	}
	return value, ok
}

// skips tells whether the option called name is to be left out.
func (o Options) skips(name string) bool {
	for _, skip := range o.Skip {
		if optionName(skip) == name {
			return true
		}
	}
	return false
}

// optionName brings "--mem", "mem=32G", "gpus_per_node" and the like to the name that sbatch
// documents.
func optionName(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "=")
	return strings.ReplaceAll(strings.TrimLeft(s, "-"), "_", "-")
}
