package container

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/text"
)

// The runtimes that there are.
const (
	Podman       = "podman"
	Docker       = "docker"
	Apptainer    = "apptainer"
	Enroot       = "enroot"
	Charliecloud = "charliecloud"
)

// Runtimes lists them.
func Runtimes() []string { return []string{Podman, Docker, Apptainer, Enroot, Charliecloud} }

// What a container sees of the node's GPUs.
const (
	AutoGPUs = "auto" // those that the node has: GPUsHere
	NVIDIA   = "nvidia"
	AMD      = "amd"
	NoGPUs   = "none"
)

// GPUs lists the values of Config.GPUs.
func GPUs() []string { return []string{AutoGPUs, NVIDIA, AMD, NoGPUs} }

// Config is the [container] table of a job.
type Config struct {
	Runtime string   `json:"runtime"`
	Image   string   `json:"image"`              // an absolute path (IsPath), or a name that the runtime knows
	Mounts  []string `json:"mounts,omitempty"`   // see ParseMount
	ShmSize int64    `json:"shm_size,omitempty"` // bytes of a /dev/shm of each container's own; 0: the node's
	GPUs    string   `json:"gpus,omitempty"`     // "": AutoGPUs
	Args    []string `json:"args,omitempty"`     // further words for the runtime, after all others
}

// Worker is one process that is to run in a container of its own.
type Worker struct {
	Argv  []string // what runs inside; a name without a slash is looked for in the image's PATH
	Env   []string // NAME=value: all that the worker would have outside
	Given []string // names of variables that go in even though they are of the host's kind, as the job file gives them a value
	Outer []string // NAME=value: the agent's own environment, which the runtime gets for variables of the host's kind
	Dir   string   // absolute
	Binds []Bind   // beside the job's mounts

	Name   string  // of the container, where the runtime names them
	GPUs   string  // NVIDIA, AMD or NoGPUs
	Limits []Limit // of resources, where the runtime would set its own
	Cores  string  // a list as of cpuset(7), where the runtime does not pass on those of its parent; "": all
	User   string  // the caller's name, where the environment has none
	UID    int
	GID    int

	ImageEnv bool // the image has a file of variables: HasEnvironment

	Peers int    // workers of this node that share what the runtime divides otherwise, and all live for a while; 1: none
	Group string // a name that these have in common, and no others; a file name
}

// Limit is a limit on a resource, as getrlimit(2) has it.
type Limit struct {
	Name       string // "nofile"
	Soft, Hard uint64
}

// A dialect is how one runtime is spoken to.
type dialect struct {
	program   string
	monitor   bool // a process of the runtime's own starts the worker
	shm       bool // a container can have a /dev/shm of its own
	names     bool // an image may be a name, and not only a file
	folders   bool // an image may be a folder
	files     bool // an image may be a file
	writesAll bool // it cannot bind for reading alone
	command   func(Config, Worker, []Bind) (argv, env []string)
	codes     map[int]string // exit codes of its own, and what they mean
}

func dialects() map[string]dialect {
	return map[string]dialect{
		Podman:       podman(),
		Docker:       docker(),
		Apptainer:    apptainer(),
		Enroot:       enroot(),
		Charliecloud: charliecloud(),
	}
}

func (c Config) dialect() dialect { return dialects()[c.Runtime] }

// Program is the name of the runtime's program.
func (c Config) Program() string { return c.dialect().program }

// HasMonitor reports whether a process of the runtime's own starts the worker, and not the program that the agent starts. The worker is
// found by its environment then, and the monitor is to be left alone: it tidies up after its container.
func (c Config) HasMonitor() bool { return c.dialect().monitor }

// IsPath reports whether the image is a file or a folder, and not a name that the runtime knows.
func (c Config) IsPath() bool {
	d := c.dialect()
	switch {
	case !d.names:
		return true
	case c.Runtime == Apptainer:
		return !strings.Contains(c.Image, "://")
	}
	return strings.HasPrefix(c.Image, "/") || strings.HasPrefix(c.Image, ".") || strings.HasPrefix(c.Image, "~")
}

// Command is what the agent starts in place of the worker, and the environment that it starts it with.
func (c Config) Command(w Worker) (argv, env []string, err error) {
	binds, err := c.AllBinds(w.Binds)
	if err != nil {
		return nil, nil, err
	}
	argv, env = c.dialect().command(c, w, binds)
	return argv, env, nil
}

// AllBinds are those of a worker and the job's mounts, in the order in which they are made. A path that a runtime would take for something
// else is an error.
func (c Config) AllBinds(own []Bind) ([]Bind, error) {
	binds := slices.Clone(own)
	for _, text := range c.Mounts {
		mount, err := ParseMount(text)
		if err != nil {
			return nil, err
		}
		binds = append(binds, mount)
	}
	for _, b := range binds {
		if err := errors.Join(CheckPath(b.Source), CheckPath(b.Target)); err != nil {
			return nil, fmt.Errorf("bind %s into a container: %w", b.Source, err)
		}
	}
	return tidy(binds), nil
}

// Explain says what an exit code may mean that the runtime gives itself; "": it is the worker's own. The worker may have given it, too.
func (c Config) Explain(code int) string { return c.dialect().codes[code] }

// Validate says what is wrong with the keys of [container], each error beginning with its key. It looks at no file.
func (c Config) Validate() error {
	d, known := dialects()[c.Runtime]
	if !known {
		return nil // which the reader of the key has refused
	}
	var errs []error
	if c.ShmSize > 0 && !d.shm {
		errs = append(errs, fmt.Errorf("shm_size: %s shares the node's /dev/shm with its containers: leave shm_size out", c.Runtime))
	}
	if strings.HasPrefix(c.Image, "-") {
		errs = append(errs, fmt.Errorf("image: %s begins with a dash: %s would take it for an option",
			text.Quoted(c.Image, maxShown), c.Runtime))
	}
	if c.IsPath() && !d.folders && !d.files {
		errs = append(errs, fmt.Errorf("image: %s runs images by their names, and not files: load %s (docker load) and write its name",
			c.Runtime, text.Quoted(c.Image, maxShown)))
	}
	for i, word := range c.Mounts {
		mount, err := ParseMount(word)
		if err != nil {
			errs = append(errs, fmt.Errorf("mounts: item %d: %w", i+1, err))
		} else if mount.ReadOnly && d.writesAll {
			errs = append(errs, fmt.Errorf(`mounts: item %d: %s shows all that it binds for writing: leave ":ro" out`, i+1, c.Runtime))
		}
	}
	return errors.Join(errs...)
}

const maxShown = 200 // bytes of a path in a message

// CheckPath says why a path cannot be bound; nil: it can.
func CheckPath(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("the path %q is not absolute", path)
	case strings.ContainsAny(path, `,:"\`+"\n"):
		return fmt.Errorf(`the path %q has a comma, a colon, a quote, a backslash or a line break, which runtimes take for something else`,
			path)
	}
	return nil
}
