package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/container"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/proc"
	"ddpbatch/mpi/launch/device"

	"golang.org/x/sys/unix"
)

// Container configures the container that each worker runs in. The agent stays outside.
type Container struct {
	container.Config
	Binds []container.Bind // besides the job's mounts and the agent's own files
	Given []string         // names of variables that the job file sets for workers
	Outer []string         // the environment of the runtime's program
	Run   string           // names containers: the same in all attempts of a run, and in no other run
	Key   string           // the file of the user's key, which is among Binds; "": none
}

// findRuntime finds the runtime's program, and makes sure that the paths to bind in the container exist on this node. A runtime
// reports a missing path, but not why the path was to be bound, and Docker makes a folder of it.
func (c Config) findRuntime() (string, error) {
	k := c.Container
	outer := c
	outer.Env, outer.Dir = k.Outer, ""
	path, err := outer.lookPath(k.Program())
	if err != nil {
		if start, ok := errors.AsType[*startError](err); ok {
			start.err = fmt.Errorf("container.runtime: %s was not found on this node: %w", k.Program(), start.err)
		}
		return "", err
	}
	if k.IsPath() {
		if _, err := os.Stat(k.Image); err != nil {
			return "", &startError{exit.Failed, fmt.Errorf("container.image does not exist on this node: %w", err)}
		}
	}
	binds, err := k.AllBinds(k.Binds)
	for _, b := range binds {
		if _, e := os.Stat(b.Source); e != nil {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return "", &startError{exit.Failed, fmt.Errorf("container.mounts: a path to mount does not exist on this node: %w", err)}
	}
	return path, nil
}

// contain replaces a worker's command by the runtime's command that runs it.
func (r *round) contain(w *worker) error {
	c, n := r.cfg, w.numbers
	spec := container.Worker{
		Argv: w.cmd.Args, Env: w.cmd.Env, Given: c.Container.Given, Outer: c.Container.Outer, Dir: c.Dir,
		Binds: slices.Concat(c.Container.Binds, r.ownBinds(w.files)),
		Name:  container.Name(c.Container.Run, c.Host, n.LocalRank), Limits: ownLimits(), Cores: coreList(w.device),
		User: userName(), UID: os.Getuid(), GID: os.Getgid(), ImageEnv: c.Container.HasEnvironment(),
		Peers: n.LocalWorldSize, Group: "ddpbatch-" + r.cookie[:16],
	}
	if len(c.Local) > 0 || !c.Builtin {
		spec.Peers = 1 // each task of a node has its own agent; and a command may end before its peers have joined it, which then fail
	}
	spec.GPUs = c.Container.GPUs
	if spec.GPUs == "" || spec.GPUs == container.AutoGPUs {
		spec.GPUs = gpusHere()
	}
	argv, env, err := c.Container.Command(spec)
	if err != nil {
		return &startError{exit.Failed, err}
	}
	if c.Container.Runtime == container.Charliecloud {
		c.makeMountPoints(spec.Binds)
	}
	w.cmd.Args, w.cmd.Env, w.cmd.Dir = argv, env, ""
	w.container = &contained{config: c.Container, name: spec.Name, pairs: []string{
		proc.CookieVariable + "=" + r.cookie, "RANK=" + strconv.Itoa(n.Rank),
	}}
	return nil
}

// ownBinds lists the agent's files whose paths a worker gets.
func (r *round) ownBinds(files workerFiles) []container.Bind {
	binds := container.Same(r.cfg.Dir)
	if r.private != nil {
		binds = append(binds, container.Same(r.private.path)...)
	}
	if path := files.errorFile; path != "" && !strings.HasPrefix(path, "/proc/") {
		binds = append(binds, container.Same(filepath.Dir(path))...)
	}
	return binds
}

// makeMountPoints makes the mount points in an image that is a folder: ch-run can make them only in an image that workers may
// change. If this fails, ch-run reports what is missing.
func (c Config) makeMountPoints(own []container.Bind) {
	image := c.Container.Image
	if info, err := os.Stat(image); err != nil || !info.IsDir() {
		return
	}
	binds, err := c.Container.AllBinds(own)
	if err != nil {
		return // Command has reported that
	}
	for _, b := range container.Missing(binds) {
		point := filepath.Join(image, b.Target)
		if info, err := os.Stat(b.Source); err == nil && !info.IsDir() {
			if os.MkdirAll(filepath.Dir(point), 0o755) == nil {
				_ = touch(point)
			}
			continue
		}
		_ = os.MkdirAll(point, 0o755)
	}
}

// userName is the caller's name, or number if that has no name on this node.
func userName() string {
	id := strconv.Itoa(os.Getuid())
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// gpusHere returns which kind of GPUs this node has.
func gpusHere() string {
	for _, kind := range []struct{ file, gpus string }{{"/dev/nvidiactl", container.NVIDIA}, {"/dev/kfd", container.AMD}} {
		if _, err := os.Stat(kind.file); err == nil {
			return kind.gpus
		}
	}
	return container.NoGPUs
}

// ownLimits lists the limits of this process that a runtime would otherwise set to its own values. The limit of processes is cut to
// the highest process number, because Podman lowers its own limit to that before it sets another.
func ownLimits() []container.Limit {
	var limits []container.Limit
	for _, l := range []struct {
		name     string
		resource int
	}{{"nofile", unix.RLIMIT_NOFILE}, {"nproc", unix.RLIMIT_NPROC}, {"memlock", unix.RLIMIT_MEMLOCK}} {
		var now unix.Rlimit
		if unix.Getrlimit(l.resource, &now) != nil {
			continue
		}
		if l.resource == unix.RLIMIT_NPROC {
			if most, err := proc.MaxPID(); err == nil {
				now.Cur, now.Max = min(now.Cur, most), min(now.Max, most)
			}
		}
		limits = append(limits, container.Limit{Name: l.name, Soft: now.Cur, Hard: now.Max})
	}
	return limits
}

// coreList lists the cores of a worker in cpuset(7)'s format.
func coreList(share device.Share) string {
	cores := share.Cores
	if cores == nil {
		cores = new(unix.CPUSet)
		if unix.SchedGetaffinity(0, cores) != nil {
			return ""
		}
	}
	var list []string
	for i := range len(cores) * 64 {
		if cores.IsSet(i) {
			list = append(list, strconv.Itoa(i))
		}
	}
	return strings.Join(list, ",")
}

// contained is a worker's container.
type contained struct {
	config *Container
	name   string   // of the container
	pairs  []string // NAME=value, in the environment of its processes only

	client *proc.Contained // nil: the runtime has no monitor
}

// processOf is the process of a worker that gets signals and is observed.
func (k *contained) processOf(client *proc.Process) process {
	if k == nil || !k.config.HasMonitor() {
		return client
	}
	k.client = proc.NewContained(client, os.Getuid() == 0, k.pairs...)
	return k.client
}

// endOf is how the worker ended, given how its client ended. A client reports a signal by its exit code, as a shell does.
func (k *contained) endOf(code int, signal syscall.Signal) (int, syscall.Signal) {
	if k == nil || !k.config.HasMonitor() || signal != 0 || code <= exitSignal || code > exitSignal+int(unix.SIGSYS) {
		return code, signal
	}
	return 0, syscall.Signal(code - exitSignal)
}

const (
	removeLimit = 10 * time.Second // less than the others wait for a report (reportMargin)
	leastCode   = 125              // the lowest exit code of a client that may have left its container behind
)

// removeLeft removes the container of a client that has ended, if the client was killed or never started the worker. Podman's
// client ends with code 0 and leaves the container if it gets TERM before anything runs in it.
func (k *contained) removeLeft(cmd *exec.Cmd, code int, signal syscall.Signal) error {
	if k == nil || k.client == nil || signal == 0 && code < leastCode && !k.client.Signalled() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	remove := exec.CommandContext(ctx, cmd.Path, "rm", "--force", k.name)
	remove.Env, remove.WaitDelay = k.config.Outer, time.Second
	text, err := remove.CombinedOutput()
	noDaemon := strings.Contains(string(text), "Cannot connect to the Docker daemon") ||
		strings.Contains(string(text), "failed to connect to the docker API") // Docker 29
	if noDaemon && !k.client.Began() {
		return nil // the client could not connect either
	}
	if err != nil && !strings.Contains(string(text), "no such container") &&
		!strings.Contains(strings.ToLower(string(text)), "no container") {
		return fmt.Errorf("remove the container %s: %w: %.300s", k.name, err, text)
	}
	return nil
}

// tidyUp removes the files that a group of peers leaves if not all of them came.
func (r *round) tidyUp() {
	if k := r.cfg.Container; k == nil || k.Runtime != container.Charliecloud {
		return
	}
	for _, path := range container.JoinFiles("ddpbatch-" + r.cookie[:16]) {
		_ = os.Remove(path) // usually it does not exist
	}
}

// whyCode explains a worker's exit code that may come from its runtime.
func (c Config) whyCode(code int) string {
	if c.Container == nil {
		return ""
	}
	return c.Container.Explain(code)
}
