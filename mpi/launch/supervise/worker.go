package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/proc"
	"ddpbatch/mpi/launch/device"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/rendezvous"

	"golang.org/x/sys/unix"
)

// process is a worker's process: a proc.Process, or a test's.
type process interface {
	Pid() int
	Signal(sig syscall.Signal) error      // signals its group, unless it has ended
	Warn(sig syscall.Signal) (int, error) // signals those of its processes that have a handler; returns how many
}

// worker is one process of the run. It leads its own process group, which ends with it.
type worker struct {
	numbers   rendezvous.RankNumbers
	cmd       *exec.Cmd
	device    device.Share
	process   process    // nil: it was not started
	container *contained // nil: no container
	out, errs *output.Stream
	files     workerFiles

	exit   int // its exit code; 0 if a signal killed it
	signal syscall.Signal
	left   error // why its container could not be removed

	words []string // its last lines, from blame.Words, before it was asked for its stacks; nil: not asked

	ended    time.Time // zero: not yet
	followed bool      // the workers were being stopped when it ended, see following
	warned   int       // the newest of the round's warnings whose signal it got, counted from 1; 0: none
}

// start starts the process. When the process has ended, ended is called once, from another goroutine, with the worker's exit and
// signal set.
func (w *worker) start(guard *proc.Guard, ended func(*worker)) error {
	w.cmd.Stdout, w.cmd.Stderr = w.out.Pipe(), w.errs.Pipe()
	process, err := guard.Start(w.device.Cores, w.cmd)
	if err != nil {
		w.out.Drop()
		w.errs.Drop()
		return err
	}
	w.process = w.container.processOf(process)
	w.out.Begin()
	w.errs.Begin()
	go func() {
		<-process.Done()
		w.out.End()
		w.errs.End()
		w.readOut()
		w.exit, w.signal = process.End()
		w.left = w.container.removeLeft(w.cmd, w.exit, w.signal)
		w.exit, w.signal = w.container.endOf(w.exit, w.signal)
		ended(w)
	}()
	return nil
}

const (
	// otherWords is how long the end of a worker waits for other processes that hold its pipe: one of its children may print the
	// reason for the failure.
	otherWords = 100 * time.Millisecond
	// lastWords is how often to check after that whether the worker's own last lines have been read, once every lookForWords. They
	// have been at once, unless this process does not get a core, or a slow console keeps it from reading.
	lastWords    = 100
	lookForWords = 10 * time.Millisecond
)

// readOut waits until everything that the worker wrote was read, but not for long. It counts checks rather than time: on a busy
// machine, time may pass without any reading.
func (w *worker) readOut() {
	timer := time.NewTimer(otherWords)
	defer timer.Stop()
	for _, stream := range []*output.Stream{w.out, w.errs} {
		select {
		case <-stream.Done():
			continue
		case <-timer.C:
		}
		break
	}
	tick := time.NewTicker(lookForWords)
	defer tick.Stop()
	for looks := 0; looks < lastWords && !(w.out.CaughtUp() && w.errs.CaughtUp()); looks++ {
		<-tick.C
	}
}

// newWorker prepares a worker that has not been started.
func (r *round) newWorker(n rendezvous.RankNumbers, path string, devices device.Share, to *output.Mux) (*worker, error) {
	c := r.cfg
	files, err := r.logsOf(n)
	if err != nil {
		return nil, err
	}
	w := &worker{numbers: n, device: devices, files: files}
	w.out, w.errs, err = to.Worker(output.Worker{Host: c.Host, Rank: n.Rank, LocalRank: n.LocalRank, Role: c.Role}, files.Paths)
	if err != nil {
		return nil, err
	}
	w.cmd = &exec.Cmd{Path: path, Args: c.commandOf(n), Dir: c.Dir, Env: workerEnviron(r, n, devices, files)}
	if c.Container != nil {
		return w, r.contain(w)
	}
	return w, nil
}

// LocalRankMacro stands for a worker's LOCAL_RANK in the arguments of its command, as torchrun has it.
const LocalRankMacro = "${local_rank}"

// localRankMacro matches the macro in both forms of Python's string.Template. With a second dollar before it, it is plain text.
var localRankMacro = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$?\$(?:\{local_rank\}|local_rank\b)`) })

// commandOf is the command of one worker: its name, and its arguments with the macro replaced.
func (c Config) commandOf(n rendezvous.RankNumbers) []string {
	command := slices.Clone(c.Command)
	rank := strconv.Itoa(n.LocalRank)
	for i := 1; i < len(command); i++ {
		command[i] = localRankMacro().ReplaceAllStringFunc(command[i], func(found string) string {
			if text, ok := strings.CutPrefix(found, "$$"); ok {
				return "$" + text
			}
			return rank
		})
	}
	return command
}

// startError is the reason why a worker cannot be started, with the code that a shell would exit with.
type startError struct {
	exit int
	err  error
}

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// findCommand finds the file of the workers' command, and checks their working directory: for a missing directory, exec would
// return the same error as for a missing command.
func (c Config) findCommand() (string, error) {
	if c.Dir != "" {
		info, err := os.Stat(c.Dir)
		if err == nil && !info.IsDir() {
			err = unix.ENOTDIR
		}
		if err != nil {
			return "", &startError{exit.Failed, fmt.Errorf("the working directory %s cannot be used: %w", c.Dir, err)}
		}
	}
	if c.Container != nil {
		return c.findRuntime()
	}
	return c.lookPath(c.Command[0])
}

// lookPath finds a command as execvp(3) does, in the workers' own PATH rather than the agent's: the job may set another. Relative
// names start at the workers' working directory.
func (c Config) lookPath(name string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return checkCommand(name, under(c.Dir, name))
	}
	var found error
	folders, _ := c.lookup("PATH")
	for _, folder := range filepath.SplitList(folders) {
		path, err := checkCommand(name, under(c.Dir, filepath.Join(folder, name)))
		if err == nil {
			return path, nil
		}
		if start, ok := errors.AsType[*startError](err); ok && start.exit == exitNotExecutable {
			found = cmp.Or(found, err)
		}
	}
	if found != nil {
		return "", found
	}
	return "", &startError{exitNotFound, fmt.Errorf("command %q is not in the workers' PATH", name)}
}

// checkCommand checks that path can be executed. name is what the user wrote.
func checkCommand(name, path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return "", &startError{exitNotFound, fmt.Errorf("command %q does not exist: %w", name, err)}
	case err != nil:
		return "", &startError{exitNotExecutable, fmt.Errorf("command %q: %w", name, err)}
	case info.IsDir():
		return "", &startError{exitNotExecutable, fmt.Errorf("command %q is a directory", name)}
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return "", &startError{exitNotExecutable, fmt.Errorf("command %q is not executable (chmod +x %s): %w", name, path, err)}
	}
	return path, nil
}

// under is path relative to dir; "" is the agent's own directory.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	// exec would look for a name without a slash in PATH.
	abs, err := filepath.Abs(filepath.Join(dir, path))
	if err != nil {
		return path
	}
	return abs
}

// execError explains errors that remain if the file exists and is executable.
func execError(name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return &startError{exitNotFound, fmt.Errorf("command %q needs an interpreter or loader that does not exist: %w", name, err)}
	case errors.Is(err, unix.ENOEXEC):
		return &startError{exitNotExecutable,
			fmt.Errorf("command %q is neither a program for this machine nor a script that begins with #!: %w", name, err)}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.ETXTBSY):
		return &startError{exitNotExecutable, fmt.Errorf("command %q: %w", name, err)}
	}
	return &startError{exit.Failed, fmt.Errorf("command %q: %w", name, err)}
}

// devices shares this machine's cores and GPUs among the agent's workers.
type devices struct {
	cfg  Config
	node *device.Node
	said map[string]bool // warnings that were logged: most are about all workers
}

func newDevices(c Config) (*devices, error) {
	node, err := device.This()
	return &devices{cfg: c, node: node, said: make(map[string]bool)}, err
}

// of decides for one worker. A request that cannot be right ends the run as a wrong command line does.
func (d *devices) of(n rendezvous.RankNumbers) (device.Share, error) {
	c := d.cfg
	share, err := d.node.Assign(device.Request{
		LocalRank: n.LocalRank, LocalWorldSize: n.LocalWorldSize,
		GPUs: c.GPUs, VirtualLocalRank: c.VirtualLocalRank, NUMA: c.NUMA,
		Builtin: c.Builtin, Task: len(c.Local) > 0, Scripted: c.RunDir != nil, Pretend: c.OneMachine,
		CPUsPerTask: c.CPUsPerTask, Lookup: c.lookup,
	})
	if err != nil {
		return share, &startError{exit.Usage, err}
	}
	for _, text := range share.Warnings {
		if !d.said[text] {
			d.said[text] = true
			c.Log.Warn(text, "host", c.Host)
		}
	}
	return share, nil
}

// lookup finds a variable of the workers' environment: its last value, as exec passes it on.
func (c Config) lookup(name string) (value string, set bool) {
	for _, entry := range c.Env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}
