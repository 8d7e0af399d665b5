package supervise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
)

const (
	drainEvery  = time.Minute      // from an answer to the next question, at least; the first question comes within this time
	drainSpread = 15 * time.Second // the most that is added, so that jobs that began together do not keep asking together
	spareEvery  = 30 * time.Minute // from an answer that the job needs its nodes to the same question, at least: others may come back
)

// drainWatch is what agent 0 knows of nodes that Slurm drains.
type drainWatch struct {
	*Agent
	silent bool     // has logged that Slurm does not answer
	said   string   // the last warning
	needed []string // nodes that the job needs, by Slurm's last answer
	why    string   // why it needs them
	asked  time.Time
}

// watchDrain runs at agent 0. If Slurm drains a node of the job, and the job can go on without it, it asks the workers to save and end.
func (a *Agent) watchDrain() {
	w := drainWatch{Agent: a}
	for pause := rand.N(drainEvery); ; pause = drainEvery + rand.N(drainSpread) {
		select {
		case <-time.After(pause):
		case <-a.warned: // the job is about to end
			return
		case <-a.ctx.Done():
			return
		}
		if w.look() {
			return
		}
	}
}

// look asks Slurm once, and reports whether the watch is over.
func (w *drainWatch) look() (over bool) {
	ctx, cancel := context.WithTimeout(w.ctx, rendezvous.FindingLimit)
	defer cancel()
	reasons, err := w.cfg.FindDrain(ctx)
	switch {
	case errors.Is(err, errors.ErrUnsupported), w.ctx.Err() != nil:
		return true
	case err != nil:
		if !w.silent {
			w.silent = true
			w.cfg.Log.Warn("could not find out whether Slurm drains a node of the job", "error", err)
		}
		return false
	}
	nodes := w.ownNodes(reasons)
	if len(nodes) == 0 {
		w.said = ""
		return false
	}
	what, why := drainText(nodes, reasons), w.whyStay(nodes)
	if why == "" {
		w.leaves.Store(true) // set first, because any agent may make the stop file
		w.put(keyDrain, warning{Host: w.cfg.Host, Why: what, Nodes: nodes})
		return true
	}
	if said := what + ": " + why; said != w.said && w.ctx.Err() == nil {
		w.said = said
		w.cfg.Log.Warn(what+", and the job goes on there", "why", why)
	}
	return false
}

// ownNodes lists those nodes that take part in the newest round, sorted.
func (w *drainWatch) ownNodes(reasons map[string]string) (nodes []string) {
	for _, m := range w.layout.Load().Members {
		if _, drains := reasons[m.Host]; drains {
			nodes = append(nodes, m.Host)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// drainText says which nodes Slurm drains, and why.
func drainText(nodes []string, reasons map[string]string) string {
	var each []string
	for _, name := range nodes {
		if reason := reasons[name]; reason != "" {
			name += " (" + reason + ")"
		}
		each = append(each, name)
	}
	return "Slurm drains " + text.Few(each, 4)
}

// whyStay returns why the workers are not asked to leave the nodes: the job would not be started again without them. It returns ""
// if the job would be. The drain itself does not end the job.
func (w *drainWatch) whyStay(nodes []string) string {
	c := w.cfg
	if !c.Policy.Names(recovery.Node) {
		return fmt.Sprintf("requeue.on does not name %q", recovery.Node)
	}
	c.Attempt = w.layout.Load().Attempt
	d, err := CallFS("find out what would follow", func() (recovery.Decision, error) {
		history, err := c.RunDir.Ledger()
		v := c.Verdict(causeStopped, exit.Requeue, "")
		v.Saved, v.Requeue = true, true
		return recovery.Decide(c.Policy, history, drainVerdict(c.WithStep(v), warning{Nodes: nodes}), false, 0), err
	})
	switch {
	case err != nil:
		return "could not find out what would follow: " + err.Error()
	case d.Action != recovery.Requeue:
		return d.Why
	case c.Spares == nil:
		return ""
	case slices.Equal(d.Exclude, w.needed) && time.Since(w.asked) < spareEvery:
		return w.why
	}
	ctx, cancel := context.WithTimeout(w.ctx, rendezvous.FindingLimit)
	defer cancel()
	why, err := c.Spares(ctx, d.Exclude)
	if err != nil {
		return fmt.Sprintf("could not find out whether it can start without %s: %v", strings.Join(d.Exclude, ", "), err)
	}
	w.needed, w.why, w.asked = d.Exclude, why, time.Now()
	return why
}

// blameDrain returns v with the nodes that Slurm drains as the cause, if the workers saved because of the drain.
func (a *Agent) blameDrain(v rundir.Verdict) rundir.Verdict {
	select {
	case <-a.drained:
	default:
		return v
	}
	if v.Cause != causeStopped || v.Exit != exit.Requeue || a.IsWarned() {
		return v
	}
	return drainVerdict(v, a.drain)
}

// drainVerdict returns v for workers that saved after the warning w of a drain, and ask to be started again. Its host is a node to
// leave out, not that of the rank that ended first.
func drainVerdict(v rundir.Verdict, w warning) rundir.Verdict {
	v.Cause, v.Drain = causeNode, true
	if !slices.Contains(w.Nodes, v.Host) {
		v.Host = w.Nodes[0]
	}
	v.Nodes = slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.Nodes, w.Nodes))))
	v.Message = w.Why + ": " + v.Message
	return v
}
