package attempt

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"ddpbatch/internal/backoff"
	"ddpbatch/internal/jobenv"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// Scheduler is what an attempt's end asks about the job, and what starts or ends the job: Slurm, or its stand-in in `simulate`.
type Scheduler interface {
	// Ask returns what is known about the job's end. Without an answer it asks again, for up to limit. If there is still none, Facts holds
	// no evidence.
	Ask(ctx context.Context, limit time.Duration) Facts
	// Requeue starts the job again. After an error that matches slurm.ErrUnreachable or context.DeadlineExceeded it may have been requeued.
	Requeue(ctx context.Context) error
	// Spares returns nil if the job can start without these nodes, and otherwise an error that says why not.
	Spares(ctx context.Context, nodes []string) error
	// Exclude keeps a requeued job from these nodes, and replaces the nodes that it excluded before.
	Exclude(ctx context.Context, nodes []string) error
	// Cancel ends the job, also if it is pending.
	Cancel(ctx context.Context) error
}

// Facts is what is known about a job's end.
type Facts struct {
	recovery.Evidence
	excluded string // the nodes that the job already excludes, as a host list
	Forbids  string // why the job cannot be requeued, whatever was decided; "": it can
	ByHand   string // how a person ended the job; "": unknown
}

const (
	// questionLimit bounds one question to Slurm, whose commands give up by themselves after MessageTimeout (10 s by default).
	questionLimit = 15 * time.Second
	// orderLimit bounds each of the commands that change something.
	orderLimit = 10 * time.Second
)

// slurmScheduler is the Slurm cluster that a batch script runs on.
type slurmScheduler struct{ a *Attempt }

func (s *slurmScheduler) Ask(ctx context.Context, limit time.Duration) Facts {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := Facts{Evidence: recovery.Evidence{Signals: s.a.Signals, EndTime: jobenv.SlurmDeadline(s.a.Env.Lookup)}}
	var (
		wg               sync.WaitGroup
		facts            slurm.JobFacts
		jobErr, nodesErr error
	)
	wg.Go(func() {
		jobErr = untilAnswered(ctx, func(ctx context.Context) (err error) {
			facts, err = s.a.Env.Slurm.Facts(ctx, s.a.JobID)
			return err
		})
	})
	nodes, giveUp := context.WithTimeout(ctx, questionLimit)
	defer giveUp()
	wg.Go(func() { f.Down, nodesErr = s.a.Env.Slurm.DownNodes(nodes, s.a.Env.nodelist()) })
	wg.Wait()
	f.Now = s.a.Env.Now()
	if err := errors.Join(jobErr, nodesErr); err != nil {
		s.a.Env.Log.Warn("Slurm did not answer all questions about the job's end", "error", err)
	}
	if jobErr != nil {
		return f
	}
	f.Asked, f.State, f.Reason, f.excluded = true, facts.State, facts.Reason, facts.Exclude
	f.Requeued = facts.Restarts > s.a.Env.start()
	f.Preempted = !facts.PreemptTime.IsZero()
	if facts.FailedNode != "" && !slices.Contains(f.Down, facts.FailedNode) { // it may be up again by now
		f.Down = append(f.Down, facts.FailedNode)
	}
	running := facts.Running() // otherwise End is when it ended, or belongs to its next start
	if f.EndTime.IsZero() || running && (!facts.End.IsZero() || facts.TimeLimit == "UNLIMITED") {
		f.EndTime = facts.End // the current end: the limit may have been changed since the variable was set
	}
	return f
}

func (s *slurmScheduler) Requeue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	return s.a.Env.Slurm.Requeue(ctx, s.a.JobID)
}

func (s *slurmScheduler) Spares(ctx context.Context, nodes []string) error {
	ctx, cancel := context.WithTimeout(ctx, s.a.timeoutsLeft(0).again)
	defer cancel()
	client := s.a.Env.Slurm
	if s.a.Run.Whole().Spec().Clusters != "" { // the script names all of them
		client = client.On(s.a.Env.Cluster)
	}
	_, err := client.TestOnly(ctx, s.a.Run.ScriptPath(), []string{"--exclude=" + slurm.FoldHostlist(nodes)})
	return err
}

// Exclude keeps the job, and the later links of its chain, from starting on the nodes.
func (s *slurmScheduler) Exclude(ctx context.Context, nodes []string) error {
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	list := slurm.FoldHostlist(nodes)
	exclude := func(id string) error {
		return untilAnswered(ctx, func(ctx context.Context) error { return s.a.Env.Slurm.ExcludeNodes(ctx, id, list) })
	}
	err := exclude(s.a.JobID)
	for _, id := range s.a.Link.Later {
		if later := exclude(id); later != nil { // the link may have been canceled; go on with the others
			s.a.Env.Log.Warn("a later link of the chain may start on nodes that failed", "job", id, "error", later)
		}
	}
	return err
}

func (s *slurmScheduler) Cancel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	return untilAnswered(ctx, func(ctx context.Context) error { return s.a.Env.Slurm.CancelNow(ctx, s.a.JobID) })
}

// untilAnswered calls do again until Slurm answers, or ctx ends.
func untilAnswered(ctx context.Context, do func(context.Context) error) error {
	pauses := newPauses()
	for {
		once, cancel := context.WithTimeout(ctx, questionLimit)
		err := do(once)
		cancel()
		if err == nil || !unanswered(err) || pauses.Wait(ctx) != nil {
			return err
		}
	}
}

// newPauses returns the pauses between two requests that Slurm does not answer.
func newPauses() *backoff.Backoff {
	return &backoff.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
}

// unanswered reports whether an error means that Slurm did not answer, or may not have.
func unanswered(err error) bool {
	return errors.Is(err, slurm.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
}
