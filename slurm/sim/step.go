package sim

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
)

// KillWait is the default time between SIGTERM and SIGKILL (slurm.conf(5), KillWait, at its default). A [Step] may set
// another.
const KillWait = 30 * time.Second

// lostAfter is how long the pretend Slurm takes to notice that a node is gone. Slurm's SlurmdTimeout is 300 s by default; waiting
// that long would show nothing more than a shorter time does.
const lostAfter = 30 * time.Second

// Step is one srun in an allocation: the same command once for each task.
type Step struct {
	Allocation Allocation
	Command    []string
	Environ    []string // what the batch script would export; the allocation's own variables are added
	// Output returns the writer of one task's standard output or standard error; the step
	// closes it. Writes to one writer do not overlap, writes to different ones may.
	Output func(stderr bool) io.WriteCloser
	// Namespaces separates the nodes from each other; nil: all nodes share this machine.
	Namespaces *Namespaces

	KillWait time.Duration // 0: the constant KillWait
	// Spare leaves the other tasks running when one fails, and when a node is lost: srun --kill-on-bad-exit=0 --no-kill.
	Spare bool
}

// Running is a step that has begun. Its methods may be called by several goroutines at once.
type Running struct {
	step  Step
	tasks []*taskProcess
	ended chan struct{} // closed when all tasks have ended, except lost ones

	mu         sync.Mutex
	left       int  // tasks that have not ended and are not lost
	ending     bool // one has failed, and the others are being ended
	nodeFailed bool // Slurm has ended the step because a node does not answer
	err        error
	timers     []*time.Timer
	wg         sync.WaitGroup
}

// taskProcess is one process of the step.
type taskProcess struct {
	node        int // its index among the job's nodes
	process     *proc.Process
	out, stderr io.WriteCloser

	over, lost, warned bool // Running.mu
}

// Start starts all tasks. The caller must call Close in the end.
//
// The tasks of a step die with this process, even if it is killed (package proc).
func (s Step) Start() (*Running, error) {
	if err := s.Allocation.Validate(); err != nil {
		return nil, err
	}
	if s.KillWait == 0 {
		s.KillWait = KillWait
	}
	r := &Running{step: s, ended: make(chan struct{})}
	for _, id := range s.Allocation.StepTasks() {
		t, err := s.start(id)
		if err != nil {
			err = fmt.Errorf("start task %d on %s: %w", id.Proc, s.Allocation.Nodes[s.Allocation.StepNode(id.Node)].Name, err)
			return nil, errors.Join(err, r.abandon())
		}
		r.tasks = append(r.tasks, t)
	}
	r.left = len(r.tasks)
	for _, t := range r.tasks {
		r.wg.Go(func() {
			<-t.process.Done()
			r.taskEnded(t)
		})
	}
	return r, nil
}

func (s Step) start(id Task) (*taskProcess, error) {
	t := &taskProcess{node: s.Allocation.StepNode(id.Node)}
	words := s.Command
	if s.Namespaces != nil {
		words = s.Namespaces.enter(s.Allocation.Nodes[t.node].Name, s.Allocation.WorkDir, words)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = slices.Concat(s.Environ, s.Allocation.Environ(id))
	cmd.Dir = s.Allocation.WorkDir
	t.out, t.stderr = s.Output(false), s.Output(true)
	cmd.Stdout, cmd.Stderr = t.out, t.stderr
	var err error
	if t.process, err = proc.Start(cmd); err != nil {
		return nil, errors.Join(err, t.out.Close(), t.stderr.Close())
	}
	return t, nil
}

// abandon ends the tasks of a step of which a task could not be started.
func (r *Running) abandon() error {
	var errs []error
	for _, t := range r.tasks {
		errs = append(errs, t.process.Signal(syscall.SIGKILL))
		<-t.process.Done()
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

func (r *Running) taskEnded(t *taskProcess) {
	err := t.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
	t.over = true
	if t.lost {
		return
	}
	r.countDown()
	if t.process.Code() != 0 && !r.step.Spare {
		r.endOthers()
	}
}

// countDown takes one task off those that are left. r.mu is held.
func (r *Running) countDown() {
	if r.left--; r.left == 0 {
		close(r.ended)
	}
}

// endOthers ends the tasks that are left, as srun --kill-on-bad-exit does. r.mu is held.
func (r *Running) endOthers() {
	if r.ending || r.left == 0 {
		return
	}
	r.ending = true
	r.signal(syscall.SIGCONT)
	r.signal(syscall.SIGTERM)
	r.later(r.step.KillWait, func() { r.signal(syscall.SIGKILL) })
}

// later calls do after a while, with r.mu held, unless the step has ended by then. r.mu is held.
func (r *Running) later(after time.Duration, do func()) {
	r.timers = append(r.timers, time.AfterFunc(after, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.left > 0 {
			do()
		}
	}))
}

// Signal sends a signal to every task that runs on a node that answers. The signal goes to the task's own process group, not to process
// groups that its workers have made, as in Slurm if it tracks processes by cgroups.
func (r *Running) Signal(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signal(sig)
}

func (r *Running) signal(sig syscall.Signal) {
	for _, t := range r.tasks {
		if !t.over && !t.lost {
			_ = t.process.Signal(sig) // the signals are valid, and the group is ours or gone
		}
	}
}

// Warn sends a signal to every task that runs on a node that answers and has a handler for the signal. It sends the signal only to that
// process, because a worker that the task is about to start is in its process group for a moment, and would be killed. It returns false if
// some task has not got the signal, as it has only just begun, or if no task is left to be warned; it may be called again then.
func (r *Running) Warn(sig syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	someone := false
	for _, t := range r.tasks {
		if t.over || t.lost {
			continue
		}
		if !t.warned {
			sent, _ := t.process.Warn(sig) // after an error the next call tries again
			t.warned = sent > 0
		}
		if !t.warned {
			return false
		}
		someone = true
	}
	for _, t := range r.tasks {
		t.warned = false // a later call is a new warning
	}
	return someone
}

// Ended returns a channel that is closed when every task has ended, except those on lost nodes.
func (r *Running) Ended() <-chan struct{} { return r.ended }

// Lose marks a node of the job as one that no longer answers, because it is dead or disconnected. The step does not wait for its tasks any
// longer, and their ends and exit codes do not count. Some seconds later Slurm ends the rest of the step. Lose returns false if no task was
// running there.
func (r *Running) Lose(node int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := false
	for _, t := range r.tasks {
		if t.node == node && !t.lost {
			if t.lost = true; !t.over {
				found = true
				r.countDown()
			}
		}
	}
	if found && !r.step.Spare {
		r.later(lostAfter, func() {
			r.nodeFailed = true
			r.endOthers()
		})
	}
	return found
}

// NodeFailed reports whether Slurm has ended the step because a node did not answer.
func (r *Running) NodeFailed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodeFailed
}

// SignalNode sends a signal to the tasks on one node of the job, and reports whether there were any.
func (r *Running) SignalNode(node int, sig syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	any := false
	for _, t := range r.tasks {
		if t.node == node && !t.over && !t.lost {
			any = true
			_ = t.process.Signal(sig)
		}
	}
	return any
}

// Code returns srun's exit code, once Ended is closed: the largest exit code of the tasks, which is 128+N for a task
// that signal N killed, and 137 for a task on a lost node.
func (r *Running) Code() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	code := 0
	for _, t := range r.tasks {
		if t.lost {
			code = max(code, 128+int(syscall.SIGKILL))
		} else {
			code = max(code, t.process.Code())
		}
	}
	return code
}

// Close kills the processes that still run, on lost nodes too, and waits for them. The error is that of a task's output.
func (r *Running) Close() error {
	r.mu.Lock()
	for _, timer := range r.timers {
		timer.Stop()
	}
	for _, t := range r.tasks {
		_ = t.process.Signal(syscall.SIGKILL)
	}
	r.mu.Unlock()
	r.wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (t *taskProcess) close() error {
	return errors.Join(t.process.Err(), t.out.Close(), t.stderr.Close())
}
