package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/launch/rendezvous"
)

// Verdict returns the end of a round, at agent 0: the outcome that the agents agreed on ("done" if none proposed another), with the
// rank that really failed first, and the nodes that were lost.
func (s *Supervisor) Verdict(ctx context.Context) (rundir.Verdict, error) {
	v, err := s.finalizeOutcome(ctx)
	if err != nil {
		return v, err
	}
	v, s.deaths, s.chosen = s.account(v)
	v.Round, v.WarnedS, v.LeadS = s.round.layout.Round, s.sinceWarning(), s.round.agent.leadS()
	return s.withStep(s.round.agent.blameDrain(s.markNodes(v))), nil
}

// PublishVerdict publishes agent 0's verdict on the round to the other agents. The verdict must be on disk by then, so that none of
// them ends the job step before it is.
func (s *Supervisor) PublishVerdict(ctx context.Context, v rundir.Verdict, next bool) error {
	return rendezvous.SetJSON(ctx, s.round.store, keyLast, rendezvous.LastWord{Verdict: v, Next: next})
}

// Explain describes for a person how the round ended, and what follows. It may be "".
func (s *Supervisor) Explain(v rundir.Verdict, follows string) string {
	var text string
	if s.hung != nil && v.Cause == causeHang {
		text = s.hung.report(v.Message, s.reports)
	}
	switch {
	case s.chosen >= 0:
		s.deaths[s.chosen].Hint = v.Advice
		text += blame.Report(s.deaths, s.chosen, follows)
	case text != "" && follows != "":
		text += "next: " + follows + "\n"
	}
	return text
}

// ReceivedVerdict returns the end of a round at every agent but agent 0: agent 0's verdict, and whether another round follows. If
// agent 0 is lost, it returns what this agent knows, and writes it to disk if agent 0 has not written a verdict.
func (s *Supervisor) ReceivedVerdict() (v rundir.Verdict, next bool, err error) {
	switch {
	case s.last != nil:
		return s.last.Verdict, s.last.Next, nil
	case s.cfg.RunDir == nil:
		return *s.outcome, false, nil
	}
	v, err = CallFS("read the other agents' verdict", func() (rundir.Verdict, error) {
		v, err := s.cfg.RunDir.Verdict(s.cfg.Attempt)
		if errors.Is(err, os.ErrNotExist) && s.cfg.RunDir.Fence(s.cfg.Attempt) == nil {
			v = s.cfg.WithStep(*s.outcome)
			v.Saved = false // whether the others have saved is not known
			return v, errNoVerdict
		}
		return v, err
	})
	switch {
	case errors.Is(err, errNoVerdict):
		err = s.Record(v)
	case err != nil:
		return *s.outcome, false, err
	}
	return v, false, err
}

// errNoVerdict means that there is no verdict, so this agent's becomes it.
var errNoVerdict = errors.New("no verdict was written")

// Record writes the final verdict on a round. It waits for earlier writes, so that none of them comes after it.
func (s *Supervisor) Record(v rundir.Verdict) error {
	return DoFS("write the verdict", func() error {
		s.writes.Wait()
		return s.cfg.Record(v)
	})
}

// withStep is Config.WithStep, or v if the file system does not answer.
func (s *Supervisor) withStep(v rundir.Verdict) rundir.Verdict {
	text, err := CallFS("read the last step", func() (rundir.Verdict, error) { return s.cfg.WithStep(v), nil })
	if err != nil {
		s.cfg.Log.Warn("could not read the last step", "error", err)
		return v
	}
	return text
}

// WithStep adds the last step that the attempt reported.
func (c Config) WithStep(v rundir.Verdict) rundir.Verdict {
	if c.RunDir == nil {
		return v
	}
	step, err := c.RunDir.StepOf(c.Attempt)
	if err != nil {
		c.Log.Warn("could not read the last step", "error", err)
	}
	v.Step = max(v.Step, step)
	return v
}

// Record writes the verdict, and its event to the ledger. An attempt that a newer one has superseded still writes its own verdict.
func (c Config) Record(v rundir.Verdict) error {
	if c.RunDir == nil {
		return nil
	}
	return errors.Join(c.RunDir.WriteVerdict(v), c.RunDir.Append(v.Event()))
}

// finalizeOutcome is the outcome that the agents agreed on, or else what agent 0 knows once all agents have reported or are lost.
func (s *Supervisor) finalizeOutcome(ctx context.Context) (v rundir.Verdict, err error) {
	text, err := json.Marshal(s.known())
	if err != nil {
		return v, err
	}
	if text, err = s.round.store.CompareSet(ctx, keyOutcome, nil, text); err != nil {
		return v, fmt.Errorf("finalize the run's outcome: %w", err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("read the run's outcome: %w", err)
	}
	return v, nil
}

// known is the outcome as far as agent 0 knows. What it proposed may still be on its way to the store. An agent that has not
// reported was lost with its work, however the others' workers ended.
func (s *Supervisor) known() rundir.Verdict {
	r := s.round
	switch {
	case s.mine != nil:
		return *s.mine
	case s.suspect != nil:
		return *s.suspect
	}
	for _, p := range r.layout.Participants {
		if _, reported := s.reports[p.Index]; !reported {
			return r.cfg.lostOutcome(&rendezvous.LostError{Agent: p.Index, Host: p.Host, Why: r.rdzv.WhyLost(p)})
		}
	}
	return r.cfg.doneOutcome(r.layout.World)
}

// codeHint is advice for a rank whose exit code may come from its container runtime.
func (r *round) codeHint(d blame.Death) string {
	if why := r.cfg.whyCode(d.Exit); why != "" {
		return fmt.Sprintf("exit code %d may not be the worker's own: %s", d.Exit, why)
	}
	return ""
}

// portHint is advice for a rank 0 that wanted to listen on MASTER_PORT itself while the agent serves PyTorch's store there.
func (r *round) portHint(d blame.Death) string {
	if !r.layout.TorchStore || d.Rank != 0 || !d.PortTaken() {
		return ""
	}
	return fmt.Sprintf("if it was to listen on MASTER_PORT (%d) itself, pass --torch-store=false (launch.torch_store = false in a job): "+
		"ddpbatch serves PyTorch's store there", r.layout.MasterPort)
}

// markNodes adds to v the hosts of agents that were lost in the round, or whose workers do not end. It dismisses those of them that
// are still connected, so that they have no part in what follows.
func (s *Supervisor) markNodes(v rundir.Verdict) rundir.Verdict {
	stood := s.round.rdzv.StoodStill(s.round.layout) // asked first: agents that are dismissed below are lost for another reason
	for _, p := range s.round.layout.Participants {
		r, reported := s.reports[p.Index]
		switch {
		case !reported:
			s.round.rdzv.Dismiss(p, "its workers did not end in time")
		case r.Stuck > 0:
			s.round.rdzv.Dismiss(p, fmt.Sprintf("%d processes of its workers do not end, even by KILL", r.Stuck))
		default:
			continue
		}
		v.Nodes = append(v.Nodes, p.Host)
	}
	slices.Sort(v.Nodes)
	v.Nodes = slices.Compact(v.Nodes)
	return s.blameIsolatedAgent0(v, stood)
}

// blameIsolatedAgent0 moves the blame for lost agents to agent 0's own node if it belongs there. An agent 0 that is cut off, or was
// stopped for a while, has lost all others at once, and they have lost it; the healthy nodes that it blames would be excluded from
// what follows. It is more likely that one node has failed than that most have. With two nodes, neither can know. stood reports
// whether agent 0 stood still.
func (s *Supervisor) blameIsolatedAgent0(v rundir.Verdict, stood bool) rundir.Verdict {
	r, own := s.round, s.cfg.Host
	var hosts []string
	for _, m := range r.layout.Members {
		hosts = append(hosts, m.Host)
	}
	slices.Sort(hosts)
	nodes := len(slices.Compact(hosts))
	silent := len(r.rdzv.SilentHosts(r.layout))
	var why string
	switch {
	case len(v.Nodes) == 0:
		return v
	case stood:
		if said, ok := s.othersVerdict(v); ok {
			return said
		}
		why = fmt.Sprintf("agent 0 on %s did not run for %v, and the others have given it up", own, rendezvous.Standstill)
	case 2*silent > nodes:
		why = fmt.Sprintf("agent 0 on %s lost %d of the other %d nodes at once: it seems to be cut off itself", own, silent, nodes-1)
	default:
		return v
	}
	v.Nodes = []string{own}
	if v.Cause == causeNode {
		v.Host, v.Message = own, why+" ("+v.Message+")"
	}
	return v
}

// othersVerdict returns v with the other agents' reason why the run ended, and false if they have written none that overrules it.
// What agent 0 knows of its workers' ends stays, and so does an exit code that forbids another attempt.
func (s *Supervisor) othersVerdict(v rundir.Verdict) (rundir.Verdict, bool) {
	if v.Cause != causeCancelled || s.cfg.RunDir == nil {
		return v, false
	}
	said, err := CallFS("read the other agents' verdict",
		func() (rundir.Verdict, error) { return s.cfg.RunDir.Verdict(s.cfg.Attempt) })
	if err != nil || !s.cfg.overruled(v, said) {
		return v, false // most likely all agents were told to end
	}
	mine := v
	v.Cause, v.Host, v.Nodes, v.Signal, v.Message, v.Report = said.Cause, said.Host, said.Nodes, said.Signal, said.Message, said.Report
	if mine.Exit == exit.Never { // see forbidRestart
		v.Message += " (" + mine.Message + ")"
	} else {
		v.Exit, v.Requeue = said.Exit, said.Requeue
	}
	return v, true
}

// overruled reports whether another agent's verdict, said, holds rather than v of agent 0, which c is for: the others had given
// agent 0 up, and it ran again only to be told to end. Slurm tells it to, because the others have ended.
func (c Config) overruled(v, said rundir.Verdict) bool {
	return v.Cause == causeCancelled && said.Cause == causeNode && said.Host == c.Host
}
