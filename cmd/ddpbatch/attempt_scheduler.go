package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// scheduler is what an attempt's end asks, and has do something: Slurm, or what plays it in `simulate`.
type scheduler interface {
	// ask tells what becomes of the job. Where there is no answer it asks again, for as long as limit. None at all is no evidence.
	ask(ctx context.Context, limit time.Duration) endFacts
	// requeue starts the job again. An error that matches slurm.ErrUnreachable or context.DeadlineExceeded leaves open whether it was done.
	requeue(ctx context.Context) error
	// spares tells whether the job can start without these nodes: nil, or why not.
	spares(ctx context.Context, nodes []string) error
	// exclude keeps a job that was requeued from these nodes, and from no others.
	exclude(ctx context.Context, nodes []string) error
	// cancel ends the job, in the queue too.
	cancel(ctx context.Context) error
}

// endFacts is what is known about a job's end.
type endFacts struct {
	recovery.Evidence
	excluded string // nodes that the job must not run on already, folded
	forbids  string // why the job cannot be requeued, whatever was decided; "": it can
	byHand   string // how a person ended the job, in a word; "": not known
}

const (
	// questionLimit bounds one question to Slurm, whose commands give up by themselves after MessageTimeout (10 s by default).
	questionLimit = 15 * time.Second
	// orderLimit bounds each of the commands by which something is done.
	orderLimit = 10 * time.Second
)

// slurmScheduler is the cluster that a batch script runs on.
type slurmScheduler struct {
	e      *env
	a      *attempt
	client *slurm.Client
}

func (s *slurmScheduler) ask(ctx context.Context, limit time.Duration) endFacts {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := endFacts{Evidence: recovery.Evidence{Signals: s.a.signals, EndTime: slurmDeadline(s.e)}}
	var (
		wg               sync.WaitGroup
		facts            slurm.JobFacts
		jobErr, nodesErr error
	)
	wg.Go(func() {
		jobErr = persist(ctx, func(ctx context.Context) (err error) {
			facts, err = s.client.Facts(ctx, s.a.jobID)
			return err
		})
	})
	nodes, giveUp := context.WithTimeout(ctx, questionLimit)
	defer giveUp()
	wg.Go(func() { f.Down, nodesErr = s.client.DownNodes(nodes, s.e.get("SLURM_JOB_NODELIST")) })
	wg.Wait()
	f.Now = s.e.Now()
	if err := errors.Join(jobErr, nodesErr); err != nil {
		s.e.log().Warn("Slurm does not say all about the end of the job", "error", err)
	}
	if jobErr != nil {
		return f
	}
	f.Asked, f.State, f.Reason, f.excluded = true, facts.State, facts.Reason, facts.Exclude
	f.Requeued = facts.Restarts > startOf(s.e)
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

func (s *slurmScheduler) requeue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	return s.client.Requeue(ctx, s.a.jobID)
}

func (s *slurmScheduler) spares(ctx context.Context, nodes []string) error {
	ctx, cancel := context.WithTimeout(ctx, patienceOf(s.e, s.a, 0).again)
	defer cancel()
	_, err := s.client.TestOnly(ctx, s.a.run.ScriptPath(), []string{"--exclude=" + slurm.FoldHostlist(nodes)})
	return err
}

func (s *slurmScheduler) exclude(ctx context.Context, nodes []string) error {
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	return persist(ctx, func(ctx context.Context) error {
		return s.client.ExcludeNodes(ctx, s.a.jobID, slurm.FoldHostlist(nodes))
	})
}

func (s *slurmScheduler) cancel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	return persist(ctx, func(ctx context.Context) error { return s.client.CancelNow(ctx, s.a.jobID) })
}

// persist does something again and again until Slurm answers, or ctx ends.
func persist(ctx context.Context, do func(context.Context) error) error {
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		once, cancel := context.WithTimeout(ctx, questionLimit)
		err := do(once)
		cancel()
		if err == nil || !unanswered(err) || pause.For(ctx, wait) != nil {
			return err
		}
	}
}

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// unanswered tells whether an error leaves open what Slurm has to say.
func unanswered(err error) bool {
	return errors.Is(err, slurm.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
}
