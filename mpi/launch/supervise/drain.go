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
	drainEvery  = time.Minute      // from an answer to the next question, at least; the first one comes within as long
	drainSpread = 15 * time.Second // is added to it at most, so that jobs that began together do not go on asking together
	spareEvery  = 30 * time.Minute // from an answer that the job needs its nodes to the same question, at least: others may come back
)

// drainWatch is what agent 0 knows of nodes that Slurm drains.
type drainWatch struct {
	*Agent
	silent bool     // that Slurm does not answer has been said
	said   string   // last
	needed []string // nodes that the job cannot do without, by Slurm's last word on that
	why    string   // it cannot
	asked  time.Time
}

// watchDrain is agent 0's: where Slurm drains a node of the job, and the job can go on without that, it asks the workers to save and end.
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

// look asks Slurm once, and reports whether there is nothing more to ask.
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
			w.cfg.Log.Warn("whether Slurm drains a node of the job is not known", "error", err)
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
		w.leaves.Store(true) // any agent may be the first to make the stop file
		w.put(keyDrain, warning{Host: w.cfg.Host, Why: what, Nodes: nodes})
		return true
	}
	if said := what + ": " + why; said != w.said && w.ctx.Err() == nil {
		w.said = said
		w.cfg.Log.Warn(what+", and the job goes on there", "why", why)
	}
	return false
}

// ownNodes are those that have a part in the newest round, sorted.
func (w *drainWatch) ownNodes(reasons map[string]string) (nodes []string) {
	for _, m := range w.layout.Load().Members {
		if _, drains := reasons[m.Host]; drains {
			nodes = append(nodes, m.Host)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// drainText says that Slurm drains nodes, and why.
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

// whyStay says why the workers are not asked to leave the nodes: the job would not be started again without them, and nobody makes it end
// there. "": it would.
func (w *drainWatch) whyStay(nodes []string) string {
	c := w.cfg
	if !c.Policy.Names(recovery.Node) {
		return fmt.Sprintf("requeue.on does not name %q", recovery.Node)
	}
	c.Attempt = w.layout.Load().Attempt
	d, err := CallFS("look what would follow", func() (recovery.Decision, error) {
		history, err := c.RunDir.Ledger()
		v := c.Verdict(causeStopped, exit.Requeue, "")
		v.Saved, v.Requeue = true, true
		return recovery.Decide(c.Policy, history, drainVerdict(c.WithStep(v), warning{Nodes: nodes}), false, 0), err
	})
	switch {
	case err != nil:
		return "what would follow is not known: " + err.Error()
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
		return fmt.Sprintf("whether it can start without %s is not known: %v", strings.Join(d.Exclude, ", "), err)
	}
	w.needed, w.why, w.asked = d.Exclude, why, time.Now()
	return why
}

// blameDrain is v with the nodes that Slurm drains as the cause, where the workers saved because of that.
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

// drainVerdict is v of workers that were warned so, and ask to be started again. Its host is the node that is to be left out, and not
// that of the rank that ended first.
func drainVerdict(v rundir.Verdict, w warning) rundir.Verdict {
	v.Cause, v.Drain = causeNode, true
	if !slices.Contains(w.Nodes, v.Host) {
		v.Host = w.Nodes[0]
	}
	v.Nodes = slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.Nodes, w.Nodes))))
	v.Message = w.Why + ": " + v.Message
	return v
}
