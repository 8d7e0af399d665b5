package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/pause"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/health"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
)

const (
	// DefaultCheckLimit bounds all Checks of a node together. The other nodes wait for it meanwhile.
	DefaultCheckLimit = time.Minute

	machineLimit = 5 * time.Second // for the checks of package health: a file system may not answer
	drainLimit   = 2 * time.Second // for output that a process which has left the check's group holds open
)

// CheckNode returns why workers must not be started on this node: the result of the agent's own checks, or of c.Checks. That is a
// [rendezvous.Rejection], which blames the node unless a command does not exist at all. It returns nil if there is no reason, or if
// ctx has ended. In task mode, only the first task of a node runs the checks.
func (c Config) CheckNode(ctx context.Context) error {
	if len(c.Local) > 0 && c.Local[0].LocalRank != 0 {
		return nil
	}
	if err := c.checkMachine(); err != nil {
		return err
	}
	if len(c.Checks) == 0 {
		return nil
	}
	return c.runChecks(ctx)
}

// unfit returns the rejection of a node that failed a check.
func (c Config) unfit(format string, args ...any) error {
	return &rendezvous.Rejection{
		Cause: string(recovery.Node), Exit: exit.Failed,
		Message: c.Host + " failed a check: " + fmt.Sprintf(format, args...), Unfit: []string{c.Host},
	}
}

// checkMachine finds problems that certainly keep workers from running, and warns of those that may.
func (c Config) checkMachine() error {
	if !c.Machine {
		return nil
	}
	workers := c.Nproc
	if len(c.Local) > 0 {
		workers = c.Local[0].LocalWorldSize
	}
	request := health.Request{
		Workers: workers, RDMA: c.RDMA, OwnShm: c.Container != nil && c.Container.Config.ShmSize > 0, Lookup: c.lookup,
	}
	found := make(chan []health.Problem, 1)
	go func() { found <- health.This().Check(request) }()
	problems, answered := pause.Await(found, machineLimit)
	if !answered {
		c.Log.Warn(fmt.Sprintf("/dev/shm or a folder for temporary files has not answered for %v", machineLimit), "host", c.Host)
	}
	for _, p := range problems {
		if p.Fatal { // fatal problems come first
			return c.unfit("%s", p.Text)
		}
		c.Log.Warn(p.Text, "host", c.Host)
	}
	return nil
}

// runChecks runs one command after the other, until one fails. Their output goes to the attempt's logs.
func (c Config) runChecks(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, cmp.Or(c.CheckLimit, DefaultCheckLimit))
	defer cancel()
	out := &checkOutput{}
	for _, command := range c.Checks {
		err := c.runCheck(limited, command, out)
		if err == nil {
			continue
		}
		c.writeCheckLog(out)
		if ctx.Err() != nil { // the run is to end, which the rendezvous reports
			return nil
		}
		return err
	}
	c.writeCheckLog(out)
	return nil
}

// runCheck runs one command in its own process group, which is killed when ctx ends. The command gets what workers inherit, but not
// the secret.
func (c Config) runCheck(ctx context.Context, command []string, out *checkOutput) error {
	name := text.Clean(text.Shortened(strings.Join(command, " "), 80))
	path, err := c.lookPath(command[0])
	if err != nil {
		return notStarted(name, err)
	}
	out.begin()
	cmd := &exec.Cmd{Path: path, Args: command, Dir: c.Dir, Env: withoutSecret(c.Env), Stdout: out, Stderr: out, WaitDelay: drainLimit}
	process, err := proc.Start(cmd)
	if err != nil {
		return notStarted(name, execError(command[0], err))
	}
	select {
	case <-process.Done():
	case <-ctx.Done():
		if err := process.Signal(unix.SIGKILL); err != nil {
			c.Log.Warn("a check cannot be ended", "error", err)
		}
		_, _ = pause.Await(process.Done(), drainLimit) // no signal ends a process that waits for a dead file system
		return c.unfit("%s (launch.check) was killed, because it had not ended %v after the first check began%s", name,
			cmp.Or(c.CheckLimit, DefaultCheckLimit), out.lastLine())
	}
	switch code, sig := process.End(); {
	case sig != 0:
		return c.unfit("%s (launch.check) was killed by %s%s", name, text.SignalName(syscall.Signal(sig)), out.lastLine())
	case code != 0:
		return c.unfit("%s (launch.check) ended with exit code %d%s", name, code, out.lastLine())
	}
	return nil
}

// notStarted returns the rejection for a check that does not exist or cannot be executed. Usually the job file has a mistake, and
// another node would not help.
func notStarted(name string, err error) error {
	code := exit.Failed
	if start, ok := errors.AsType[*startError](err); ok {
		code = start.exit
	}
	return &rendezvous.Rejection{Cause: string(recovery.Start), Exit: code,
		Message: fmt.Sprintf("launch.check: %s cannot be started: %v", name, err)}
}

func withoutSecret(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool { return strings.HasPrefix(entry, "DDPBATCH_SECRET=") })
}

// writeCheckLog writes what the checks have printed. If that fails, their results count nevertheless.
func (c Config) writeCheckLog(out *checkOutput) {
	out.mu.Lock()
	kept := slices.Clone(out.kept)
	out.mu.Unlock()
	if c.RunDir == nil || len(kept) == 0 {
		return
	}
	err := DoFS("write the output of launch.check", func() error {
		f, err := os.OpenFile(c.RunDir.CheckLogPath(c.Attempt, c.Host), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(kept)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		c.Log.Warn("could not write the output of launch.check", "host", c.Host, "error", err)
	}
}

const (
	maxCheckOutput = 256 << 10 // bytes that are kept of all checks together
	maxLastLine    = 4 << 10
)

// checkOutput keeps the first bytes that are written to it, and the last line that is not empty. A check that no signal ends may go
// on writing.
type checkOutput struct {
	mu   sync.Mutex
	kept []byte
	last []byte // the end of the current command's output
}

func (o *checkOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, p[:min(len(p), maxCheckOutput-len(o.kept))]...)
	o.last = append(o.last, p...)
	o.last = slices.Clone(o.last[max(0, len(o.last)-maxLastLine):])
	return len(p), nil
}

// begin is called before each command.
func (o *checkOutput) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = nil
}

// lastLine is ": " and the last line that is not empty, or "" if there is none.
func (o *checkOutput) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.Split(string(o.last), "\n")
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(text.Clean(line)); line != "" {
			return ": " + text.Shortened(line, 300)
		}
	}
	return ""
}
