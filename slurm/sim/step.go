package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
)

// killWait is how long a cancelled step's tasks have between TERM and KILL: slurm.conf's
// KillWait at its default.
const killWait = 30 * time.Second

// Step is one srun in an allocation: the same command once on every node.
type Step struct {
	Allocation Allocation
	Command    []string
	Environ    []string // what the batch script would export; the allocation's own variables are added
	// Output returns the writer of one task's standard output or standard error; the step
	// closes it. Writes to one writer do not overlap, writes to different ones do.
	Output func(stderr bool) io.WriteCloser
}

// Run starts a task on every node and waits for all of them. The code is srun's: the
// largest of the tasks' own, 128+N for a task that signal N killed. When ctx ends every task gets CONT and TERM
// as scancel(1) sends them, and KILL after KillWait; that is no error. As with srun
// --kill-on-bad-exit, a task that fails takes the others with it.
func (s Step) Run(ctx context.Context) (code int, err error) {
	if err := s.Allocation.Validate(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, s.Allocation.Nodes)
	var tasks []*task
	for i := range s.Allocation.Nodes {
		t, err := s.start(i)
		if err != nil {
			cancel()
			err = fmt.Errorf("start the task on %s: %w", s.Allocation.Name(i), err)
			for _, t := range tasks {
				t.process.Signal(syscall.SIGKILL)
				<-t.process.Done()
				err = errors.Join(err, t.close())
			}
			return 0, err
		}
		tasks = append(tasks, t)
	}
	for _, t := range tasks {
		go func() {
			stop := context.AfterFunc(ctx, t.cancel)
			<-t.process.Done()
			if stop(); t.process.Code() != 0 {
				cancel()
			}
			ended <- t.close()
		}()
	}
	for range tasks {
		err = errors.Join(err, <-ended)
	}
	for _, t := range tasks {
		code = max(code, t.process.Code())
	}
	return code, err
}

// task is the step's process on one node.
type task struct {
	process     *proc.Process
	out, stderr io.WriteCloser
}

func (s Step) start(node int) (*task, error) {
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Env = append(s.Environ[:len(s.Environ):len(s.Environ)], s.Allocation.Environ(node)...)
	cmd.Dir = s.Allocation.WorkDir
	t := &task{out: s.Output(false), stderr: s.Output(true)}
	cmd.Stdout, cmd.Stderr = t.out, t.stderr
	var err error
	if t.process, err = proc.Start(cmd); err != nil {
		return nil, errors.Join(err, t.out.Close(), t.stderr.Close())
	}
	return t, nil
}

// cancel is scancel: CONT and TERM, and KILL after KillWait.
func (t *task) cancel() {
	t.process.Signal(syscall.SIGCONT)
	t.process.Signal(syscall.SIGTERM)
	select {
	case <-t.process.Done():
	case <-time.After(killWait):
		t.process.Signal(syscall.SIGKILL)
	}
}

func (t *task) close() error {
	return errors.Join(t.process.Err(), t.out.Close(), t.stderr.Close())
}
