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

// Scheduler is what an attempt's end asks, and has do something: Slurm, or what plays it in `simulate`.
type Scheduler interface {
	// Ask tells what becomes of the job. Where there is no answer it asks again, for as long as limit. None at all is no evidence.
	Ask(ctx context.Context, limit time.Duration) Facts
	// Requeue starts the job again. An error that matches slurm.ErrUnreachable or context.DeadlineExceeded leaves open whether it was done.
	Requeue(ctx context.Context) error
	// Spares tells whether the job can start without these nodes: nil, or why not.
	Spares(ctx context.Context, nodes []string) error
	// Exclude keeps a job that was requeued from these nodes, and from no others.
	Exclude(ctx context.Context, nodes []string) error
	// Cancel ends the job, in the queue too.
	Cancel(ctx context.Context) error
}

// Facts is what is known about a job's end.
type Facts struct {
	recovery.Evidence
	excluded string // nodes that the job must not run on already, folded
	Forbids  string // why the job cannot be requeued, whatever was decided; "": it can
	ByHand   string // how a person ended the job, in a word; "": not known
}

const (
	// questionLimit bounds one question to Slurm, whose commands give up by themselves after MessageTimeout (10 s by default).
	questionLimit = 15 * time.Second
	// orderLimit bounds each of the commands by which something is done.
	orderLimit = 10 * time.Second
)

// slurmScheduler is the cluster that a batch script runs on.
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
		s.a.Env.Log.Warn("Slurm does not say all about the end of the job", "error", err)
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
	running := facts.Running() // else its end is when it ended, or will have begun again
	if f.EndTime.IsZero() || running && (!facts.End.IsZero() || facts.TimeLimit == "UNLIMITED") {
		f.EndTime = facts.End // of now: a limit may be moved, and the variable stays
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
	if s.a.Run.Whole().Spec().Clusters != "" { // the script's line names them all
		client = client.On(s.a.Env.Cluster)
	}
	_, err := client.TestOnly(ctx, s.a.Run.ScriptPath(), []string{"--exclude=" + slurm.FoldHostlist(nodes)})
	return err
}

// Exclude keeps the job from starting on the nodes, and the links of its chain that come after it.
func (s *slurmScheduler) Exclude(ctx context.Context, nodes []string) error {
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	list := slurm.FoldHostlist(nodes)
	exclude := func(id string) error {
		return untilAnswered(ctx, func(ctx context.Context) error { return s.a.Env.Slurm.ExcludeNodes(ctx, id, list) })
	}
	err := exclude(s.a.JobID)
	for _, id := range s.a.Link.Later {
		if later := exclude(id); later != nil { // it may have been cancelled; the others are told
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

// untilAnswered does something again and again until Slurm answers, or ctx ends.
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

// newPauses are those between two questions to Slurm that it does not answer.
func newPauses() *backoff.Backoff {
	return &backoff.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
}

// unanswered tells whether an error leaves open what Slurm has to say.
func unanswered(err error) bool {
	return errors.Is(err, slurm.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
}
