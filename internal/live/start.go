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

// Streams are those of what runs on the nodes.
type Streams struct {
	In       *os.File // nil: nothing
	Terminal bool     // In is one, and Out and Err are the same
	Out, Err io.Writer
}

// runOn runs this program once on each of the hosts, with the words that args returns for a host; of a job in Slurm they are the same for
// all. It returns the highest exit code.
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
		return exit.Failed, fmt.Errorf("%w; job %s goes on", context.Cause(ctx), j.ID)
	}
	return slices.Max(codes), errors.Join(errs...)
}

// onThisMachine is the command of a pretend node.
func (j *Job) onThisMachine(ctx context.Context, s Streams, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, j.Run.Binary(), args...)
	cmd.Env, cmd.Dir = j.environ, j.Run.Whole().Path()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: !s.Terminal}
	// What a shell has started ends with it. One on a terminal, which has no group of its own, ends by itself.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 2 * stopDelay
	return cmd
}

// runHere runs a command to its end and returns its exit code. Only while the goroutine keeps its thread does the command end with this
// process, and not before ([slurm.Exec]).
func runHere(cmd *exec.Cmd, s Streams) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if s.In != nil { // else /dev/null
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

// shared is s for several commands at once. Files are theirs to write to: a terminal must stay one for them.
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
