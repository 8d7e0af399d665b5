package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"ddpbatch/internal/exit"
	"ddpbatch/slurm"
)

// Streams are the streams of the commands on the nodes.
type Streams struct {
	In       *os.File // nil: /dev/null
	Terminal bool     // In is a terminal, and so are Out and Err
	Out, Err io.Writer
}

// runOn runs this program once on each host, and returns the highest exit code. args returns the arguments for a host; for a job in Slurm
// they must be the same for all hosts.
func (j *Job) runOn(ctx context.Context, hosts []string, s Streams, args func(host string) []string) (code int, err error) {
	var commands []*exec.Cmd
	if j.parts == nil {
		for _, host := range hosts {
			commands = append(commands, j.onThisMachine(ctx, s, args(host)))
		}
	}
	for _, part := range j.parts {
		on := slices.DeleteFunc(slices.Clone(part.Nodes), func(node string) bool { return !slices.Contains(hosts, node) })
		if len(on) == 0 {
			continue
		}
		srun, err := j.client.Beside(ctx, slurm.Beside{
			Part: part, Nodes: on, Dir: j.Run.Whole().Path(), Terminal: s.Terminal, Input: s.In != nil,
			Command: append([]string{j.Run.Binary()}, args("")...),
		})
		if err != nil {
			return exit.Failed, err
		}
		commands = append(commands, srun)
	}
	s = s.shared()
	codes, errs := make([]int, len(commands)), make([]error, len(commands))
	var wg sync.WaitGroup
	for i, command := range commands {
		wg.Go(func() { codes[i], errs[i] = runHere(command, s) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return exit.Failed, fmt.Errorf("%w; job %s keeps running", context.Cause(ctx), j.ID)
	}
	return slices.Max(codes), errors.Join(errs...)
}

// onThisMachine returns the command for a pretend node.
func (j *Job) onThisMachine(ctx context.Context, s Streams, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, j.Run.Binary(), args...)
	cmd.Env, cmd.Dir = j.environ, j.Run.Whole().Path()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: !s.Terminal}
	// The signal goes to the command's whole group. On a terminal the command has no group of its own, so there it ends by itself.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 2 * stopDelay
	return cmd
}

// runHere runs a command to its end and returns its exit code. It locks the goroutine to its thread, so that the parent-death signal is
// sent when this process ends and not earlier ([slurm.Exec]).
func runHere(cmd *exec.Cmd, s Streams) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if s.In != nil { // nil means /dev/null
		cmd.Stdin = s.In
	}
	cmd.Stdout, cmd.Stderr = s.Out, s.Err
	err := cmd.Run()
	ended, isExit := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return cmd.ProcessState.ExitCode(), nil
	case !isExit:
		return exit.Failed, fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return ended.ExitCode(), nil
}

// shared returns s for use by several commands at once, with a lock around each writer that is not a file. Files are passed to the commands
// directly, because a terminal must remain one for them.
func (s Streams) shared() Streams {
	var mu sync.Mutex
	lock := func(w io.Writer) io.Writer {
		if _, isFile := w.(*os.File); isFile {
			return w
		}
		return &lockedWriter{&mu, w}
	}
	s.Out, s.Err = lock(s.Out), lock(s.Err)
	return s
}

type lockedWriter struct {
	mu *sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
