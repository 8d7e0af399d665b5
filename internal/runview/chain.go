package runview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// chain is the newest submission of a run, if it is several jobs of which each begins after those before it have ended.
type chain struct {
	jobs  []string // in order, as far as known
	of    int      // number of links that it was to have
	begun int      // index of the job that began last; -1: none has
	short bool     // links are missing, and no command is submitting them
}

// chainOf returns the chain as which a run was last submitted, or nil if that was one job or an array, or if the ledger cannot be read.
func chainOf(run *rundir.Dir) *chain {
	if run.Spec().Kind != "slurm" || run.Array() != nil {
		return nil
	}
	known, err := run.Submissions()
	if err != nil || len(known.Chain) == 0 {
		return nil
	}
	return &chain{jobs: known.Chain, of: max(known.Links, len(known.Chain)), begun: known.Place(known.Begun) - 1}
}

// IsChain reports whether a run was last submitted as a chain.
func (v *Viewer) IsChain(run *rundir.Dir) bool { return chainOf(run) != nil }

// left returns the jobs that may not have ended: a link begins when those before it have ended.
func (c *chain) left() []string { return c.jobs[max(0, c.begun):] }

// addLost adds the part of a submission that a killed command could not record: its job in Slurm, if there is one. c is the chain so far,
// or nil.
func (c *chain) addLost(s *submission.Submission) *chain {
	switch {
	case s.Open.Detail == rundir.EventLink && c != nil:
		if s.Job != "" && !slices.Contains(c.jobs, s.Job) {
			c.jobs = append(c.jobs, s.Job)
		}
		return c
	case s.Job != "" && s.Open.Links > 1:
		return &chain{jobs: []string{s.Job}, of: s.Open.Links, begun: -1}
	case s.Job != "":
		return nil
	}
	return c
}

// takeLink makes a row describe the link that counts: the first that has not ended, or else the one that began last.
func (row *RunStatus) takeLink(jobs []slurm.JobStatus) {
	c := row.chain
	at := max(0, c.begun)
	for i, id := range c.left() {
		link := RunStatus{Job: id, Name: row.Name}
		ours := link.partsIn(jobs)
		if len(ours) == 0 || worst(ours).Ended() {
			continue
		}
		if len(row.open) == 0 {
			at += i
		}
		row.open = append(row.open, worst(ours))
	}
	row.Job, row.Link, row.Links = c.jobs[at], at+1, c.of
	row.waits = row.waits || at > c.begun
	if c.short && len(row.open) > 0 && row.Next == "" {
		row.Next = fmt.Sprintf("its submission was cut short: the chain has %d links", len(c.jobs))
	}
}

// StillOpen says in words which of the run's jobs have not ended.
func (row *RunStatus) StillOpen() string {
	if len(row.open) < 2 {
		return fmt.Sprintf("job %s is still %s", row.Job, row.State)
	}
	var links []string
	for _, job := range row.open {
		links = append(links, job.ID+" "+job.State)
	}
	return "links of its chain have not ended (" + strings.Join(links, ", ") + ")"
}

// Open returns those of a run's jobs that have not ended. Its errors are those of Ended.
func (v *Viewer) Open(ctx context.Context, run *rundir.Dir, ids []string) (open []string, err error) {
	jobs, err := v.Slurm.On(run.Cluster()).Jobs(ctx, ids)
	if err != nil && !errors.Is(err, slurm.ErrUnknownJob) {
		return nil, err
	}
	for _, id := range ids {
		_, ended, err := endedIn(jobs, run, id)
		if err != nil {
			return nil, err
		}
		if !ended {
			open = append(open, id)
		}
	}
	return open, nil
}

// endedIn reports, from what Slurm knows of jobs, whether a job of a run has ended, and its state; "" means that Slurm does not know it.
// Its errors are those of Ended.
func endedIn(jobs []slurm.JobStatus, run *rundir.Dir, id string) (state string, over bool, err error) {
	plain, cluster, _ := strings.Cut(id, ";")
	row := RunStatus{Job: plain, Name: run.Spec().Name, run: run}
	ours := row.partsIn(jobs)
	if slices.ContainsFunc(ours, func(job slurm.JobStatus) bool { return !job.Ended() }) {
		return "", false, nil
	}
	if other := slices.IndexFunc(jobs, func(job slurm.JobStatus) bool {
		return job.Of(plain) &&
			!job.Ended()
	}); other >= 0 { // and not by ours
		return "", false, &usage.Error{
			Message: fmt.Sprintf("job %s is named %q in Slurm, but this run is named %q: the job may belong to another run", plain,
				jobs[other].Name, row.Name),
			Hint: "if the job is this run's: " + slurm.JobID{ID: plain, Cluster: cmp.Or(cluster, run.Cluster())}.CancelCommand(),
		}
	}
	if len(ours) > 0 {
		state = worst(ours).State
	}
	return state, true, nil
}

// chainLog shows the logs of a chain's links, one after the other.
type chainLog struct{ tails []*tailer }

func (v *Viewer) chainLog(run *rundir.Dir, c *chain) *chainLog {
	log := &chainLog{}
	for i, id := range c.jobs {
		head := func() { fmt.Fprintf(v.Err, "==> link %d of %d, job %s <==\n", i+1, c.of, id) }
		log.tails = append(log.tails, &tailer{path: run.SlurmLogPath(id), to: v.Out, head: head})
	}
	return log
}

// copy shows what is new. Two links never run at once, so everything that a later link writes comes after the output of earlier ones.
func (l *chainLog) copy() error {
	for _, tail := range l.tails {
		if err := tail.copy(); err != nil {
			return err
		}
	}
	return nil
}

// printChain shows the logs of a chain's links.
func (v *Viewer) printChain(run *rundir.Dir, c *chain) error {
	log := v.chainLog(run, c)
	defer log.close()
	if err := log.copy(); err != nil {
		return err
	}
	if !log.shown() {
		fmt.Fprintln(v.Err, "no output yet")
	}
	return nil
}

// shown reports whether there was any output to show.
func (l *chainLog) shown() bool {
	return slices.ContainsFunc(l.tails, func(tail *tailer) bool { return tail.file != nil })
}

func (l *chainLog) close() {
	for _, tail := range l.tails {
		tail.close()
	}
}
