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

// Verdict is agent 0's end of a round: the outcome that the agents agreed on ("done", where nobody said otherwise), with who failed
// first in truth and which nodes were lost.
func (s *Supervisor) Verdict(ctx context.Context) (rundir.Verdict, error) {
	v, err := s.finalizeOutcome(ctx)
	if err != nil {
		return v, err
	}
	v, s.deaths, s.chosen = s.account(v)
	v.Round, v.WarnedS, v.LeadS = s.round.layout.Round, s.sinceWarning(), s.round.agent.leadS()
	return s.withStep(s.round.agent.blameDrain(s.markNodes(v))), nil
}

// PublishVerdict tells the other agents agent 0's last word on the round. The verdict is on disk by then, so that none of them ends the
// job step before it is there.
func (s *Supervisor) PublishVerdict(ctx context.Context, v rundir.Verdict, next bool) error {
	return rendezvous.SetJSON(ctx, s.round.store, keyLast, rendezvous.LastWord{Verdict: v, Next: next})
}

// Explain tells a person how the round ended, and what follows; "": there is nothing to tell.
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

// ReceivedVerdict is the end of a round at every other agent: the verdict, and whether there is another round, are agent 0's.
// Where that is lost, what this agent knows takes its place, and is put on disk if agent 0
// did not come to it.
func (s *Supervisor) ReceivedVerdict() (v rundir.Verdict, next bool, err error) {
	switch {
	case s.last != nil:
		return s.last.Verdict, s.last.Next, nil
	case s.cfg.RunDir == nil:
		return *s.outcome, false, nil
	}
	v, err = CallFS("read what the others say of the run's end", func() (rundir.Verdict, error) {
		v, err := s.cfg.RunDir.Verdict(s.cfg.Attempt)
		if errors.Is(err, os.ErrNotExist) && s.cfg.RunDir.Fence(s.cfg.Attempt) == nil {
			v = s.cfg.WithStep(*s.outcome)
			v.Saved = false // whether the others have is not known
			return v, errNobodySaid
		}
		return v, err
	})
	switch {
	case errors.Is(err, errNobodySaid):
		err = s.Record(v)
	case err != nil:
		return *s.outcome, false, err
	}
	return v, false, err
}

// errNobodySaid: there is no verdict, and this agent's is to be it.
var errNobodySaid = errors.New("there is no verdict")

// Record is the last word on a round; what was written before is not to come after it.
func (s *Supervisor) Record(v rundir.Verdict) error {
	return DoFS("write the verdict", func() error {
		s.writes.Wait()
		return s.cfg.Record(v)
	})
}

// withStep is Config.WithStep, unless the file system does not answer.
func (s *Supervisor) withStep(v rundir.Verdict) rundir.Verdict {
	text, err := CallFS("look for the last step", func() (rundir.Verdict, error) { return s.cfg.WithStep(v), nil })
	if err != nil {
		s.cfg.Log.Warn("the last step is not known", "error", err)
		return v
	}
	return text
}

// WithStep adds the last step that the attempt told of.
func (c Config) WithStep(v rundir.Verdict) rundir.Verdict {
	if c.RunDir == nil {
		return v
	}
	step, err := c.RunDir.StepOf(c.Attempt)
	if err != nil {
		c.Log.Warn("the last step is not known", "error", err)
	}
	v.Step = max(v.Step, step)
	return v
}

// Record writes the verdict and the ledger's line. An attempt that a newer one
// has superseded still has a verdict of its own to write.
func (c Config) Record(v rundir.Verdict) error {
	if c.RunDir == nil {
		return nil
	}
	return errors.Join(c.RunDir.WriteVerdict(v), c.RunDir.Append(v.Event()))
}

// finalizeOutcome is the outcome that the agents agreed on, or else what agent 0 knows when all agents have reported or are lost.
func (s *Supervisor) finalizeOutcome(ctx context.Context) (v rundir.Verdict, err error) {
	text, err := json.Marshal(s.known())
	if err != nil {
		return v, err
	}
	if text, err = s.round.store.CompareSet(ctx, keyOutcome, nil, text); err != nil {
		return v, fmt.Errorf("settle the run's outcome: %w", err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("read the run's outcome: %w", err)
	}
	return v, nil
}

// known is the outcome as far as agent 0 knows. What it proposed may still be on its way to the store; and an agent that
// has not reported was lost with its work, however the others' workers ended.
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

// hint is for a rank whose code its container runtime may have given, and for a rank 0 that wanted to serve at MASTER_PORT itself, where
// the agent serves PyTorch's store.
func (r *round) hint(d blame.Death) string {
	if why := r.cfg.whyCode(d.Exit); why != "" {
		return fmt.Sprintf("exit code %d may not be the worker's own: %s", d.Exit, why)
	}
	if !r.layout.TorchStore || d.Rank != 0 || !d.PortTaken() {
		return ""
	}
	return fmt.Sprintf("if it was to listen on MASTER_PORT (%d) itself, pass --torch-store=false (launch.torch_store = false in a job): "+
		"ddpbatch serves PyTorch's store there", r.layout.MasterPort)
}

// markNodes names the hosts of agents that were lost in the round, or whose workers do not end, and drops those
// agents that are still connected: none of them has a part in what follows.
func (s *Supervisor) markNodes(v rundir.Verdict) rundir.Verdict {
	stood := s.round.rdzv.StoodStill(s.round.layout) // whoever is dismissed here is lost for another reason
	for _, p := range s.round.layout.Participants {
		r, reported := s.reports[p.Index]
		switch {
		case !reported:
			s.round.rdzv.Dismiss(p, "its workers were waited for in vain")
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

// blameIsolatedAgent0 turns the blame for lost agents to agent 0's own node where it belongs there. An agent 0 that is cut off, or was
// stopped for a while, has lost all others at once, and they have lost it; healthy nodes that it blamed would be excluded from what
// follows. That one node has failed is more likely than that most of them have. Of two nodes neither can know. stood: it stood still.
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

// othersVerdict is v with what the others have said of why the run ended; false: they said nothing that overrules it. How the workers
// ended that agent 0 knows of, and that one of them forbids another attempt, stays.
func (s *Supervisor) othersVerdict(v rundir.Verdict) (rundir.Verdict, bool) {
	if v.Cause != causeCancelled || s.cfg.RunDir == nil {
		return v, false
	}
	said, err := CallFS("read what the others say of the run's end",
		func() (rundir.Verdict, error) { return s.cfg.RunDir.Verdict(s.cfg.Attempt) })
	if err != nil || !s.cfg.overruled(v, said) {
		return v, false // most likely all of them were told to end
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

// overruled tells whether what another agent said holds, and not v of agent 0, which c is for: the others had given it up, and it was
// woken up to be told to end. Slurm tells it so because they have ended.
func (c Config) overruled(v, said rundir.Verdict) bool {
	return v.Cause == causeCancelled && said.Cause == causeNode && said.Host == c.Host
}
