package container

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/text"
)

// The supported runtimes.
const (
	Podman       = "podman"
	Docker       = "docker"
	Apptainer    = "apptainer"
	Enroot       = "enroot"
	Charliecloud = "charliecloud"
)

// Runtimes lists the supported runtimes.
func Runtimes() []string { return []string{Podman, Docker, Apptainer, Enroot, Charliecloud} }

// The GPUs of the node that a container sees.
const (
	AutoGPUs = "auto" // those that the node has
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
	Args    []string `json:"args,omitempty"`     // further arguments for the runtime, after all others
}

// Worker is one process that is to run in a container of its own.
type Worker struct {
	Argv  []string // the command to run inside; a name without a slash is looked up in the image's PATH
	Env   []string // NAME=value: the environment that the worker would have outside a container
	Given []string // names of host variables (IsHostVariable) that go in because the job file gives them a value
	Outer []string // NAME=value: the agent's own environment, from which the runtime gets the host variables
	Dir   string   // absolute
	Binds []Bind   // beside the job's mounts

	Name   string  // the container's name, for runtimes that name containers
	GPUs   string  // NVIDIA, AMD or NoGPUs
	Limits []Limit // limits of resources, for runtimes that would set their own
	Cores  string  // a list as in cpuset(7), for runtimes that do not pass on those of their parent; "": all
	User   string  // the caller's name, in case the environment does not have it
	UID    int
	GID    int

	ImageEnv bool // the image has a file of variables: HasEnvironment

	Peers int    // how many long-lived workers of this node share what the runtime would otherwise separate; 1: only this one
	Group string // a name that the peers share, different from that of other groups; a file name
}

// Limit is a limit of a resource, as in getrlimit(2).
type Limit struct {
	Name       string // "nofile"
	Soft, Hard uint64
}

// A dialect describes the command line of one runtime.
type dialect struct {
	program   string
	monitor   bool // a separate process of the runtime starts the worker
	shm       bool // a container can have a /dev/shm of its own
	names     bool // an image may be a name, not only a file
	folders   bool // an image may be a folder
	files     bool // an image may be a file
	writesAll bool // it cannot bind read-only
	command   func(Config, Worker, []Bind) (argv, env []string)
	codes     map[int]string // exit codes of its own, and what they mean
}

// imageKinds says what an image is for the runtimes that do not take plain names.
var imageKinds = map[string]string{
	Apptainer: `a file, a folder or a name with "://"`, Enroot: "a squashfs file", Charliecloud: "a folder or a squashfs file",
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

// Program returns the name of the runtime's program.
func (c Config) Program() string { return c.dialect().program }

// HasMonitor reports whether a separate process of the runtime starts the worker, and not the program that the agent starts. Then the agent
// finds the worker by its environment, and must not end the monitor, which cleans up after its container.
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

// Command returns the command that the agent starts in place of the worker, and its environment.
func (c Config) Command(w Worker) (argv, env []string, err error) {
	binds, err := c.AllBinds(w.Binds)
	if err != nil {
		return nil, nil, err
	}
	argv, env = c.dialect().command(c, w, binds)
	return argv, env, nil
}

// AllBinds returns the binds of a worker and the job's mounts, in the order in which they are made. It returns an error for a path that a
// runtime would misread.
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

// Explain says what an exit code means if it is one of the runtime's own; the worker may have exited with it, too. It returns "" for other
// codes.
func (c Config) Explain(code int) string { return c.dialect().codes[code] }

// Validate reports what is wrong with the keys of [container]; each error begins with its key. It does not read files.
func (c Config) Validate() error {
	d, known := dialects()[c.Runtime]
	if !known {
		return nil // the reader of the key has refused it
	}
	var errs []error
	if c.ShmSize > 0 && !d.shm {
		errs = append(errs, fmt.Errorf("shm_size: %s shares the node's /dev/shm with its containers: remove shm_size", c.Runtime))
	}
	if strings.HasPrefix(c.Image, "-") {
		errs = append(errs, fmt.Errorf("image: %s begins with a dash: %s would read it as an option",
			text.Quoted(c.Image, maxShown), c.Runtime))
	}
	if c.IsPath() && !d.folders && !d.files {
		errs = append(errs, fmt.Errorf("image: %s runs images by their names, not files: load %s (docker load) and write its name",
			c.Runtime, text.Quoted(c.Image, maxShown)))
	}
	if takes := imageKinds[c.Runtime]; takes != "" && c.IsPath() && strings.Contains(c.Image, ":") &&
		!strings.ContainsRune("/.~", rune(c.Image[0])) {
		errs = append(errs, fmt.Errorf("image: %s takes %s, and %s is the name of an image (write a file's name as ./FILE)", c.Runtime,
			takes, text.Quoted(c.Image, maxShown)))
	}
	type taken struct {
		item  int
		mount Bind
	}
	at := map[string]taken{}
	for i, word := range c.Mounts {
		mount, err := ParseMount(word)
		if err != nil {
			errs = append(errs, fmt.Errorf("mounts: item %d: %w", i+1, err))
			continue
		}
		if mount.ReadOnly && d.writesAll {
			errs = append(errs, fmt.Errorf(`mounts: item %d: %s cannot bind read-only: remove ":ro"`, i+1, c.Runtime))
		}
		if first, ok := at[mount.Target]; ok && first.mount != mount {
			errs = append(errs, fmt.Errorf("mounts: item %d: item %d is at %s in the container, too: write another path for one of them",
				i+1, first.item, text.Quoted(mount.Target, maxShown)))
		}
		at[mount.Target] = taken{i + 1, mount}
	}
	return errors.Join(errs...)
}

const maxShown = 200 // bytes of a path in a message

// CheckPath returns an error that says why a path cannot be bound, or nil if it can.
func CheckPath(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("the path %q is not absolute", path)
	case strings.ContainsAny(path, `,:"\`+"\n"):
		return fmt.Errorf(`the path %q has a comma, a colon, a quote, a backslash or a line break, which runtimes misread`, path)
	}
	return nil
}
