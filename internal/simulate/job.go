package simulate

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

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/pause"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

// requeueDelay is how long a requeued job waits. Slurm's own delay is one second more than cred_expire, 121 s by default; waiting so long
// would show nothing more.
const requeueDelay = 200 * time.Millisecond

// Job is a simulated job: it does the work of Slurm's controller and of the batch script. A Job remains the same through requeues.
type Job struct {
	e          Env
	run        *rundir.Dir
	job        *jobfile.Job
	pretend    Pretend
	allocation sim.Allocation  // of the present run
	deadline   time.Time       // of this process itself; zero: none
	namespaces *sim.Namespaces // nil: not needed
	out        *console

	faults []sim.Fault      // still to be injected
	steps  []*sim.Running   // of all runs: a node that was cut off lives on during later runs
	newest *attempt.Attempt // of the job's newest run
	used   int              // pretend nodes so far
	link   attempt.Link     // the present link of the job's chain; zero: not a chain

	mu   sync.Mutex
	lost []string // nodes that have failed
}

func New(ctx context.Context, e Env, run *rundir.Dir, job *jobfile.Job, p Pretend, a sim.Allocation) (_ *Job, err error) {
	a.WorkDir = job.RanksDir(run.Whole().Path())
	s := &Job{e: e, run: run, job: job, pretend: p, allocation: a, faults: p.Faults, used: len(a.Nodes),
		link: linkOf(a.JobID, 1, job.Links())}
	if s.deadline, err = jobenv.Deadline(e.Lookup); err != nil {
		return nil, err
	}
	if err := s.makeNamespaces(ctx); err != nil {
		return nil, err
	}
	label := ""
	if a.Array != nil { // as "ddpbatch logs" labels the lines of elements
		label = fmt.Sprintf("[%d] ", a.Array.Index)
	}
	id, err := run.JobID()
	if err == nil {
		s.out, err = openConsole(e, run, run.SlurmLogPath(id), label, p.Quiet)
	}
	if err != nil && s.namespaces != nil {
		err = errors.Join(err, s.namespaces.Close())
	}
	return s, err
}

// makeNamespaces creates the namespaces that some faults need, because one process cannot do such things to another.
func (s *Job) makeNamespaces(ctx context.Context) (err error) {
	has := func(k sim.Kind) bool {
		return slices.ContainsFunc(s.faults, func(f sim.Fault) bool { return f.Kind == k })
	}
	network := has(sim.Partition)
	if !network && !has(sim.NoSpace) {
		return nil
	}
	if s.namespaces, err = sim.NewNamespaces(ctx, s.run.CheckpointsPath(), network); err != nil || !network {
		return err
	}
	s.allocation.Nodes = slices.Clone(s.allocation.Nodes)
	for i, n := range s.allocation.Nodes {
		s.allocation.Nodes[i] = sim.NetworkNode(n, i)
	}
	return nil
}

// Close ends everything that is left of the job.
func (s *Job) Close() error {
	var errs []error
	for _, step := range s.steps {
		errs = append(errs, step.Close())
	}
	if s.namespaces != nil {
		errs = append(errs, s.namespaces.Close())
	}
	return errors.Join(append(errs, s.out.close())...)
}

// Run runs the job, again each time it is requeued, and returns how its last attempt ended.
func (s *Job) Run(ctx context.Context) (attempt.Ending, error) {
	for {
		w, err := s.runAttempt(ctx)
		goesOn := w.Decision.Action == recovery.Requeue || w.Decision.Action == recovery.EndLink && !s.link.Last()
		if err != nil || !goesOn {
			s.reportLeft()
			s.onEnd(ctx, w, err)
			return w, err
		}
		if err := s.wait(ctx, w); err != nil {
			s.reportLeft()
			w, err := s.withdraw(ctx, w, err)
			s.onEnd(ctx, w, err)
			return w, err
		}
	}
}

// onEnd runs launch.on_end, as the batch script does at the end of the run.
func (s *Job) onEnd(ctx context.Context, w attempt.Ending, err error) {
	if s.newest == nil || w.Verdict.Attempt == 0 { // it never began
		return
	}
	s.newest.Signals = nil // this process is not about to be killed
	code := s.code(ctx, w)
	if code == 0 && err != nil {
		code = s.e.ExitCode(err)
	}
	s.newest.OnEnd(context.WithoutCancel(ctx), w, code)
}

// wait simulates the time from the job's requeue until it begins again, or from the end of a link of its chain until the next one begins.
// An error says why it does not begin.
func (s *Job) wait(ctx context.Context, w attempt.Ending) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.replace(append(w.Decision.Exclude, s.gone()...)); err != nil {
		return err
	}
	if w.Decision.Action == recovery.EndLink {
		ended := s.link
		s.link = linkOf(s.allocation.JobID, ended.Number+1, ended.Of)
		s.allocation.Restarts = 0 // a job of its own, though with the same pretend ID
		s.report("%s ended (%s); %s begins", ended, w.Decision.Why, s.link)
	} else {
		s.allocation.Restarts++
		s.report("requeued (%s)", w.Decision.Why)
	}
	return pause.For(ctx, requeueDelay)
}

// linkOf returns the place in a chain for a process that plays all of its links, which have the run's pretend job ID.
func linkOf(id, number, of int) attempt.Link {
	if of < 2 {
		return attempt.Link{}
	}
	later := slices.Repeat([]string{strconv.Itoa(id)}, of-number)
	return attempt.Link{Number: number, Of: of, Later: later}
}

// runAttempt is one run of the job: it does what the batch script does, while supervise does what Slurm does.
func (s *Job) runAttempt(ctx context.Context) (w attempt.Ending, err error) {
	jobID, err := s.run.JobID()
	if err != nil {
		return w, err
	}
	begin := time.Now()
	deadline := s.deadline
	if s.pretend.Time > 0 {
		s.allocation.EndTime = begin.Add(s.pretend.Time)
		deadline = time.Time{} // Slurm's variable says it
	}
	kept, _ := slurm.Scrub(s.e.Environ)
	script := s.e.Env // the environment of the batch script
	script.Lookup = jobenv.LookupIn(slices.Concat(kept, s.allocation.ScriptEnviron()))
	a, err := attempt.Claim(script, s.run, jobID, s.link)
	if err != nil {
		return w, err
	}
	s.newest, a.KillWait = a, s.pretend.KillWait
	defer adopt(s.e.Log)()
	step, err := s.start(ctx, slices.Concat(kept, a.Environ(), jobenv.DeadlineEnviron(deadline)))
	if err != nil {
		return w, errors.Join(err, a.Record(rundir.Verdict{
			Attempt: a.Number, JobID: jobID, Cause: string(recovery.Start), FirstRank: -1, Exit: exit.Failed,
			Message: err.Error(), Time: s.e.Now(),
		}))
	}
	shell := &batchScript{signalFile: s.run.SignalPath(a.Number)}
	err = s.supervise(ctx, step, shell, begin)
	w, endErr := s.endAttempt(ctx, a, step.Code(), shell)
	return w, errors.Join(err, endErr)
}

// start starts the agents of an attempt, as srun does.
func (s *Job) start(ctx context.Context, environ []string) (*sim.Running, error) {
	if s.namespaces != nil {
		for _, n := range s.allocation.Nodes {
			if err := s.namespaces.AddNode(ctx, n); err != nil {
				return nil, err
			}
		}
	}
	step, err := sim.Step{
		Allocation: s.allocation, Command: []string{s.run.Binary(), "run"}, Environ: environ,
		Output: s.out.stream, Namespaces: s.namespaces, KillWait: s.pretend.KillWait, Spare: s.job.Launch.MinNodes > 0,
	}.Start()
	if err == nil {
		s.steps = append(s.steps, step)
	}
	return step, err
}

// supervise does what Slurm and the faults do to a step until it has ended.
func (s *Job) supervise(ctx context.Context, step *sim.Running, script *batchScript, begin time.Time) error {
	during, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	warning, warned := s.job.BatchScript(s.run.Path()).Warning()
	slurmctld := sim.Controller{Tasks: step, Batch: script, KillWait: s.pretend.KillWait, GraceTime: s.pretend.GraceTime, Warning: warning}
	injector := sim.Injector{
		RunDir: s.run.Path(), Allocation: s.allocation, Running: step, Controller: slurmctld, Namespaces: s.namespaces,
		Progress: s.progress, WarnTasks: unix.SignalNum("SIG" + s.job.Launch.WarnSignal),
		Injected: func(f sim.Fault, what, node string) { script.noteFault(f); s.injected(f, what, node) },
	}
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { s.faults, failed = injector.Await(during, s.faults) })
	wg.Go(func() { s.forwardStop(ctx, during, step, slurmctld, script) })
	if s.pretend.Time > 0 {
		wg.Go(func() { s.watchTime(during, slurmctld, script, begin, warned) })
	}
	<-step.Ended()
	over()
	wg.Wait()
	if step.NodeFailed() {
		script.event(nodeFailed)
	}
	return failed
}

// forwardStop ends the job when the user asks for that: it passes on Ctrl-C as it is, and treats anything else as a cancel.
func (s *Job) forwardStop(ctx, during context.Context, step *sim.Running, slurmctld sim.Controller, script *batchScript) {
	select {
	case <-ctx.Done():
	case <-during.Done():
		return
	}
	script.event(sim.Cancelled)
	if stopped, ok := errors.AsType[launch.SignalError](context.Cause(ctx)); ok && stopped.Sig == syscall.SIGINT {
		step.Signal(syscall.SIGINT)
		if pause.For(during, s.pretend.KillWait) == nil {
			step.Signal(syscall.SIGKILL)
		}
		return
	}
	slurmctld.Play(during, sim.Cancelled)
}

// watchTime ends the job at the time limit, and before that sends the warning that sbatch would have been asked for.
func (s *Job) watchTime(ctx context.Context, slurmctld sim.Controller, script *batchScript, begin time.Time, warned bool) {
	end := begin.Add(s.pretend.Time)
	if warned {
		if pause.Until(ctx, end.Add(-slurmctld.Warning.Lead)) != nil {
			return
		}
		slurmctld.Play(ctx, sim.Warned)
	}
	if pause.Until(ctx, end) != nil {
		return
	}
	s.report("the time limit of %v is over", s.pretend.Time)
	script.event(sim.TimeLimit)
	slurmctld.Play(ctx, sim.TimeLimit)
}

// progress returns how far the run is, for faults that wait for that.
func (s *Job) progress() (step int64, attempt int) {
	attempt, err := s.run.NewestAttempt()
	if err != nil {
		return 0, 0
	}
	// a user's command need not say in which attempt it is
	if m, ok, err := s.run.LastMetrics(); err == nil && ok && (m.Attempt == attempt || m.Attempt == 0) {
		step = m.Step
	}
	return step, attempt
}

// EventFault is the event of a fault in the run's ledger.
const EventFault = "fault"

// injected reports a fault.
func (s *Job) injected(f sim.Fault, what, node string) {
	s.report("fault %s: %s", f, what)
	attempt, _ := s.run.NewestAttempt()
	if node != "" {
		s.mu.Lock()
		s.lost = append(s.lost, node)
		s.mu.Unlock()
	}
	err := s.run.Append(rundir.Event{Time: s.e.Now(), Event: EventFault, Attempt: attempt, Node: node, Detail: f.Text + ": " + what})
	if err != nil {
		s.e.Log.Warn("the fault could not be recorded in the run's ledger", "error", err)
	}
}

// reportLeft names the faults that were never injected.
func (s *Job) reportLeft() {
	for _, f := range s.faults {
		s.report("fault %s was not injected: its moment never came", f)
	}
}

// report writes a line of simulate itself to the screen and into the job's log.
func (s *Job) report(format string, args ...any) {
	s.out.write(fmt.Appendf(nil, "ddpbatch: "+format+"\n", args...), true, true)
}

// gone returns the nodes that faults have taken.
func (s *Job) gone() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lost)
}

// down returns those of the gone nodes that the job still has. The others were replaced, and Slurm is asked only about the job's nodes.
func (s *Job) down() []string {
	return slices.DeleteFunc(s.gone(), func(lost string) bool {
		return !slices.ContainsFunc(s.allocation.Nodes, func(n sim.Node) bool { return n.Name == lost })
	})
}

// replace gives the job other nodes for those that it must not run on again, as a cluster with spare nodes does.
func (s *Job) replace(bad []string) error {
	nodes := slices.Clone(s.allocation.Nodes)
	for i, n := range nodes {
		if !slices.Contains(bad, n.Name) {
			continue
		}
		if s.used >= sim.MaxNodes {
			return fmt.Errorf("no spare node is left to replace %s", n.Name)
		}
		spare := sim.PretendNode(s.used)
		if s.pretend.Names != "" {
			spare.Name = "spare" + strconv.Itoa(s.used)
		}
		if slices.ContainsFunc(s.pretend.Faults, func(f sim.Fault) bool { return f.Kind == sim.Partition }) {
			spare = sim.NetworkNode(spare, s.used)
		}
		s.used++
		nodes[i], s.allocation.Nodelist = spare, ""
		s.report("%s takes the place of %s", spare.Name, n.Name)
	}
	s.allocation.Nodes = nodes
	return nil
}
