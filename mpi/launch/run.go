package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/launch/supervise"
)

// Run is the agent of one node. It meets the other agents, starts this node's workers, stops all of them when one fails anywhere,
// and starts them again as often as c.Policy allows. It returns when the workers of all agents have ended, with the same verdict on
// every agent: that of the last round. The program should exit with Verdict.Exit, whether or not there is an error.
//
// When ctx ends, the run is stopped: the workers get the cause's signal once (a [SignalError]; TERM for other causes), and KILL
// after c.Grace.
//
// An error means that the run did not begin (the agents did not meet, or c is wrong), or that its verdict could not be written. A
// worker's failure is not an error: the verdict reports it.
func Run(ctx context.Context, c AgentConfig) (rundir.Verdict, error) {
	c, err := c.withDefaults()
	if err != nil {
		return c.notBegunOutcome(err), err
	}
	if c.RunDir != nil {
		// Each agent checks for itself: a superseded attempt may do nothing but end.
		if err := c.RunDir.Fence(c.Attempt); err != nil {
			return c.notBegunOutcome(err), err
		}
	}
	logDir, err := output.NewLogDir(c.LogDir, c.RunID)
	if c.Reject = cmp.Or(c.Reject, err); c.Reject == nil {
		c.Reject = c.supervisorConfig().CheckNode(ctx)
	}
	r, err := c.begin(ctx, logDir)
	if err != nil {
		return notBegun(c, err)
	}
	v, err := r.rounds(ctx)
	return v, errors.Join(err, r.close())
}

// run is one agent's part of a run that has begun.
type run struct {
	cfg   AgentConfig
	rdzv  *rendezvous.Rendezvous
	agent *supervise.Agent
}

// begin meets the other agents. If this agent turns out to be agent 0, c.Index becomes 0.
func (c *AgentConfig) begin(ctx context.Context, logDir *output.LogDir) (*run, error) {
	rc := c.rendezvousConfig()
	r, err := rendezvous.Join(ctx, &rc)
	c.Index = rc.Index
	if err != nil {
		return nil, err
	}
	return &run{*c, r, supervise.NewAgent(ctx, c.supervisorConfig(), r, r.First, logDir)}, nil
}

// close ends this agent's part. No worker is left then.
func (r *run) close() error {
	defer r.agent.Wait()
	return errors.Join(r.agent.Close(), r.rdzv.Close())
}

// rounds runs one round after the other, from this agent's first to the run's last.
func (r *run) rounds(ctx context.Context) (rundir.Verdict, error) {
	for l := r.rdzv.First; ; {
		v, next, err := r.round(ctx, l)
		if next == nil || err != nil {
			return v, err
		}
		l = next
	}
}

// round runs one round, and returns its verdict and the next round's layout, or nil if no round follows.
func (r *run) round(ctx context.Context, l *rendezvous.Layout) (rundir.Verdict, *rendezvous.Layout, error) {
	s := r.agent.Supervise(ctx, l)
	defer s.Close()
	after := context.WithoutCancel(ctx) // messages between agents outlive the signal that ends the run
	if r.rdzv.Index() == 0 {
		return r.finalize(ctx, after, s, l)
	}
	v, another, err := s.ReceivedVerdict()
	if !another || err != nil {
		return v, nil, err
	}
	next, err := r.rdzv.AwaitLayout(after, l.Round+1)
	return v, next, r.rdzv.LostOr(err)
}

// finalize ends a round at agent 0: it decides the verdict and what follows, writes the verdict to disk, and only then publishes it.
func (r *run) finalize(ctx, after context.Context, s *supervise.Supervisor, l *rendezvous.Layout) (rundir.Verdict,
	*rendezvous.Layout, error) {
	v, err := s.Verdict(after)
	if err != nil {
		return v, nil, err
	}
	v.Unfit = r.rdzv.Unfit()
	next, v, follows := r.decide(ctx, s.AllEnded(), l, v)
	v.Report = cmp.Or(s.Explain(v, follows), v.Report)
	err = s.Record(v)
	if next != nil && err == nil {
		err = r.proceed(after, l, next)
	}
	if err != nil && next != nil {
		v.Restart, next = false, nil
		if r.cfg.RunDir != nil { // Record may have written the verdict with Restart
			err = errors.Join(err, supervise.DoFS("write the verdict", func() error { return r.cfg.RunDir.WriteVerdict(v) }))
		}
	}
	if err := s.PublishVerdict(after, v, next != nil); err != nil {
		r.cfg.Log.Warn("could not publish the verdict to the other agents", "error", err)
	} else if next == nil {
		r.rdzv.Finish(v)
	}
	return v, next, err
}

// decide decides at agent 0 what follows a round: nothing (nil), or another round, whose layout it returns. why explains that to
// people. ended means that none of this agent's own processes is left.
func (r *run) decide(
	ctx context.Context, ended bool, l *rendezvous.Layout, v rundir.Verdict,
) (next *rendezvous.Layout, _ rundir.Verdict, why string) {
	var history []rundir.Event
	if r.cfg.RunDir != nil {
		var err error
		if history, err = supervise.CallFS("read the ledger", r.cfg.RunDir.Ledger); err != nil {
			r.cfg.Log.Warn("could not read the run's earlier events", "error", err)
		}
	}
	room := ctx.Err() == nil && !r.agent.IsWarned() && ended && r.rdzv.Agents() >= r.cfg.MinCount
	d := recovery.Decide(r.cfg.Policy, history, v, room, l.Round)
	if d.Action != recovery.Restart {
		return nil, v, "" // the batch script decides on a requeue
	}
	r.leaveOut(l, v)
	attempt, err := r.claimNext(l)
	if errors.Is(err, rundir.ErrSuperseded) {
		v.Exit, v.Requeue = exit.Never, false
	}
	if err == nil {
		next, err = r.rdzv.NewLayout(l.Round+1, attempt, r.agent.Deadline())
	}
	if err != nil {
		v.Message += "; the workers are not started again: " + err.Error()
		return nil, v, "the workers are not started again: " + err.Error()
	}
	v.Restart = true
	r.cfg.Log.Warn("the workers are started again", "why", d.Why, "message", v.Message, "agents", len(next.Members))
	return next, v, d.Why
}

// leaveOut drops the agents of nodes whose ranks reported that the node has failed, as long as enough agents for the run remain. It
// never drops agent 0.
func (r *run) leaveOut(l *rendezvous.Layout, v rundir.Verdict) {
	if recovery.CauseOf(v) != recovery.Node || v.Error == "" {
		return
	}
	for _, p := range l.Participants {
		if slices.Contains(v.Nodes, p.Host) && r.rdzv.Agents() > r.cfg.MinCount {
			r.rdzv.Dismiss(p, "its node has failed: "+v.Error)
		}
	}
}

// claimNext claims the attempt after l's, which fences off whatever is left of l's. It fails if another job has claimed it: then
// this job is what is left.
func (r *run) claimNext(l *rendezvous.Layout) (int, error) {
	if r.cfg.RunDir == nil {
		return l.Attempt, nil
	}
	return supervise.CallFS("claim the next attempt", func() (int, error) { return r.cfg.RunDir.ClaimAfter(l.Attempt) })
}

// proceed publishes the next round, whose attempt has been claimed.
func (r *run) proceed(ctx context.Context, l, next *rendezvous.Layout) error {
	if c := r.cfg; c.RunDir != nil {
		now := time.Now().Round(0) // without its monotonic part
		detail := fmt.Sprintf("restart %d in the job, after attempt %d", next.Round, l.Attempt)
		err := errors.Join(
			c.RunDir.Append(rundir.Event{Time: now, Event: rundir.EventRestart, Attempt: l.Attempt, Detail: detail}),
			c.RunDir.Append(rundir.Event{
				Time: now, Event: rundir.EventBegin, Attempt: next.Attempt, Job: c.JobID, Start: c.Restarts, Detail: detail,
			}))
		if err != nil {
			return err
		}
	}
	if err := r.rdzv.Publish(ctx, next); err != nil {
		return err
	}
	if l.Round == 0 {
		return nil
	}
	return r.rdzv.Forget(ctx, l.Round-1) // all members of this round have received its end
}

// notBegun is the end of a run that did not begin, at least for this agent.
func notBegun(c AgentConfig, err error) (rundir.Verdict, error) {
	if over, ok := errors.AsType[*rendezvous.OverError](err); ok {
		c.Log.Warn("the run is over, and this agent had no part in it: it came when all places were taken, or too late, and the "+
			"workers were not started again",
			"end", over.Last.Message)
		return over.Last, nil
	}
	v := c.notBegunOutcome(err)
	if !c.recordsFailure(err) {
		return v, err
	}
	v = c.supervisorConfig().WithStep(v)
	return v, errors.Join(err, c.supervisorConfig().Record(v))
}

// recordsFailure reports whether this agent has to record that the run did not begin: it is agent 0, or it has no number, never
// reached an agent 0, and no other such agent has recorded it.
func (c AgentConfig) recordsFailure(why error) bool {
	_, received := errors.AsType[*rendezvous.Rejection](why)
	_, lost := errors.AsType[*rendezvous.LostError](why)
	switch {
	case c.Index >= 0:
		return c.Index == 0
	case c.RunDir == nil || received || lost: // there was an agent 0
		return false
	}
	_, err := c.RunDir.Verdict(c.Attempt)
	return errors.Is(err, os.ErrNotExist)
}

// notBegunOutcome is the verdict of a run whose agents did not meet.
func (c AgentConfig) notBegunOutcome(err error) rundir.Verdict {
	r := rendezvous.RejectionOf(err)
	v := c.supervisorConfig().Verdict(r.Cause, r.Exit, r.Message)
	v.Signal, v.Unfit = r.Signal, r.Unfit
	if len(r.Unfit) > 0 && v.Cause == string(recovery.Node) {
		v.Host, v.Nodes = r.Unfit[0], r.Unfit
	}
	if unmet, ok := errors.AsType[*rendezvous.NotMetError](err); ok && len(unmet.Rows) > 0 {
		v.Report = unmet.Error()
	}
	return v
}
