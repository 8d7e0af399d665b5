package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/proc"
)

// Injector injects faults into one run of a pretend job.
type Injector struct {
	RunDir     string
	Allocation Allocation
	Running    *Running
	Controller Controller
	Namespaces *Namespaces    // nil: none
	WarnTasks  syscall.Signal // the signal that warns the tasks themselves
	// Progress returns the newest step in the run's metrics, or 0 if there is none, and the attempt of that step, or else of the run.
	Progress func() (step int64, attempt int)
	// Injected is called with each fault as it is injected: what happens, and to which node; node is empty if the fault does not hit a
	// node.
	Injected func(f Fault, what, node string)
}

// How often triggers are checked: the clock, and the run's progress, which is read from files.
const (
	pollEvery         = 2 * time.Millisecond
	pollProgressEvery = 20 * time.Millisecond
)

// CheckFaults returns an error if a fault names a rank or a node that the job does not have.
func (a Allocation) CheckFaults(faults []Fault, ranks int) error {
	for _, f := range faults {
		if f.OnRank() && f.Rank >= ranks {
			return fmt.Errorf("fault %q: rank %d does not exist; the last rank is %d", f.Text, f.Rank, ranks-1)
		}
		if _, err := a.nodeOf(f); err != nil && f.OnNode() {
			return err
		}
	}
	return nil
}

// nodeOf returns the index, among the job's nodes, of the node that a fault names.
func (a Allocation) nodeOf(f Fault) (int, error) {
	i := slices.IndexFunc(a.Nodes, func(n Node) bool { return n.Name == f.Node })
	if n, err := strconv.Atoi(f.Node); i < 0 && err == nil {
		i = n
	}
	if i < 0 || i >= len(a.Nodes) {
		return 0, fmt.Errorf("fault %q: node %s does not exist; name one of %s, or a number from 0 to %d", f.Text, f.Node,
			fold(a.Nodes), len(a.Nodes)-1)
	}
	return i, nil
}

// Await injects each of the faults when its time comes, until ctx ends, which should be when the job does. It returns when all faults are
// over, with those that have not been injected.
func (s Injector) Await(ctx context.Context, faults []Fault) (left []Fault, err error) {
	begin := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for _, f := range faults {
		wg.Go(func() {
			injected, err := s.await(ctx, f, begin)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("fault %q: %w", f.Text, err))
			}
			if !injected {
				left = append(left, f)
			}
		})
	}
	wg.Wait()
	return left, errors.Join(errs...)
}

// await waits until one fault is due, and injects it.
func (s Injector) await(ctx context.Context, f Fault, begin time.Time) (injected bool, err error) {
	every := pollEvery
	if f.Step > 0 || f.Attempt > 0 {
		every = pollProgressEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if s.due(f, time.Since(begin)) {
			done, err := s.inject(ctx, f)
			if done || err != nil {
				return done, err
			}
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-ticker.C:
		}
	}
}

func (s Injector) due(f Fault, since time.Duration) bool {
	if f.Step == 0 && f.Attempt == 0 {
		return since >= f.Time
	}
	step, attempt := s.Progress()
	return since >= f.Time && step >= f.Step && (f.Attempt == 0 || attempt == f.Attempt)
}

// inject injects the fault. It returns false if the fault's target does not exist yet.
func (s Injector) inject(ctx context.Context, f Fault) (bool, error) {
	switch f.Kind {
	case Kill, Stop, Slow:
		return s.injectIntoRank(ctx, f)
	case NodeDies, AgentDies, Partition:
		return s.injectIntoNode(f)
	case Term:
		s.Injected(f, "the job is preempted: TERM to its tasks, a last one "+s.Controller.GraceTime.String()+" later", "")
		s.Controller.Play(ctx, Preempted)
	case Warn:
		if f.Everybody && !s.Running.Warn(s.WarnTasks) {
			return false, nil
		}
		s.Injected(f, s.warned()+" that the job's time will be over", "")
		s.Controller.Play(ctx, Warned)
	case Timeout:
		s.timeout(ctx, f)
	case NoSpace:
		return true, s.fillDisk(ctx, f)
	}
	return true, nil
}

func (s Injector) timeout(ctx context.Context, f Fault) {
	if f.Lead > 0 {
		s.Injected(f, s.warned()+" that the job's time will be over in "+f.Lead.String(), "")
		s.Controller.Play(ctx, Warned)
		if pause.For(ctx, f.Lead) != nil {
			return
		}
	}
	s.Injected(f, "the job's time is over", "")
	s.Controller.Play(ctx, TimeLimit)
}

// warned says who gets Slurm's warning.
func (s Injector) warned() string {
	if w := s.Controller.Warning; w.Signal != 0 && !w.Batch {
		return "the tasks are warned by " + w.Name()
	}
	return "the batch script is warned"
}

func (s Injector) injectIntoRank(ctx context.Context, f Fault) (bool, error) {
	p, ok, err := worker(s.RunDir, f.Rank)
	if !ok {
		return false, err
	}
	rank := fmt.Sprintf("rank %d (process %d)", f.Rank, p.PID)
	switch f.Kind {
	case Kill:
		s.Injected(f, rank+" gets SIGKILL", "")
		return true, p.Signal(syscall.SIGKILL)
	case Stop:
		s.Injected(f, rank+" gets SIGSTOP", "")
		if err := p.Signal(syscall.SIGSTOP); err != nil || f.For == 0 {
			return true, err
		}
		pause.For(ctx, f.For)
		return true, p.Signal(syscall.SIGCONT)
	}
	s.Injected(f, fmt.Sprintf("%s is stopped for %.0f %% of the time", rank, 100*f.Share), "")
	return true, slow(ctx, p, f)
}

// slowPeriod is the length of one cycle of stopping and running.
const slowPeriod = 20 * time.Millisecond

func slow(ctx context.Context, p proc.Relative, f Fault) error {
	if f.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.For)
		defer cancel()
	}
	still := time.Duration(f.Share * float64(slowPeriod))
	for ctx.Err() == nil {
		err := p.Signal(syscall.SIGSTOP)
		pause.For(ctx, still)
		if err = errors.Join(err, p.Signal(syscall.SIGCONT)); err != nil {
			return err
		}
		pause.For(ctx, slowPeriod-still)
	}
	return nil
}

func (s Injector) injectIntoNode(f Fault) (bool, error) {
	i, err := s.Allocation.nodeOf(f)
	if err != nil {
		return false, err
	}
	node := s.Allocation.Nodes[i].Name
	if f.Kind == AgentDies {
		if !s.Running.SignalNode(i, syscall.SIGKILL) {
			return false, nil
		}
		s.Injected(f, "the agent on "+node+" gets SIGKILL", "")
		return true, nil
	}
	if !s.Running.Lose(i) {
		return false, nil
	}
	if f.Kind == Partition {
		s.Injected(f, node+" is disconnected from the network, and lives on", node)
		return true, s.Namespaces.cut(node)
	}
	s.Injected(f, node+" is gone, with all that ran there", node)
	return true, killNode(s.RunDir, node)
}

func (s Injector) fillDisk(ctx context.Context, f Fault) error {
	s.Injected(f, "the disk of the checkpoints is full", "")
	if err := s.Namespaces.fill(); err != nil {
		return err
	}
	if f.For == 0 {
		return nil
	}
	pause.For(ctx, f.For)
	return s.Namespaces.empty()
}

// worker finds the process of a rank, and not its child processes, which have the same variables. If there are several, such as an older
// one on a node that was disconnected, it returns the newest.
func worker(runDir string, rank int) (found proc.Relative, ok bool, err error) {
	all, err := proc.WithVariables("DDPBATCH_RUN_DIR="+runDir, "RANK="+strconv.Itoa(rank))
	if err != nil {
		return proc.Relative{}, false, err
	}
	pids := map[int]bool{}
	for _, p := range all {
		pids[p.PID] = true
	}
	for _, p := range slices.Backward(all) {
		if !pids[p.Parent] {
			return p, true, nil
		}
	}
	return proc.Relative{}, false, nil
}

// killNode ends all processes of a run on a pretend node at once. It stops them first, so that none of them sees another one end and
// reports it.
func killNode(runDir, node string) error {
	stopped := map[int]proc.Relative{}
	const rounds = 100 // each finds processes that were being started during the round before
	for range rounds {
		all, err := proc.WithVariables("DDPBATCH_RUN_DIR="+runDir, "SLURMD_NODENAME="+node)
		if err != nil {
			return err
		}
		more := false
		for _, p := range all {
			if _, known := stopped[p.PID]; known {
				continue
			}
			if err := p.Signal(unix.SIGSTOP); err != nil {
				return err
			}
			stopped[p.PID], more = p, true
		}
		if !more {
			break
		}
	}
	var errs []error
	for _, p := range stopped {
		errs = append(errs, p.Signal(unix.SIGKILL))
	}
	return errors.Join(errs...)
}
