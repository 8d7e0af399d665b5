package live

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/slurm"
)

// Job is a job that runs, as a person's command sees it.
type Job struct {
	Run     *rundir.Dir
	ID      string // as a person names it: "12", "12_3"
	Attempt int    // the newest; 0: none has begun
	Ranks   []Rank // of that attempt, by number; none: it has not begun them

	client  *slurm.Client // of the job's cluster
	environ []string      // of what a simulated job's nodes run
	parts   []slurm.Part  // none: the job is simulated
}

// Rank is a rank, and the node that it was begun on.
type Rank struct {
	Number int    `json:"rank"`
	Host   string `json:"host"`
}

// Open finds out where the job id of a run runs. The run must be the caller's own, as its program is started. A job that does not run is a
// [usage.Error] that says what became of it. environ is the caller's environment, for the nodes of a simulated job.
func Open(ctx context.Context, v *runview.Viewer, environ []string, run *rundir.Dir, id string) (*Job, error) {
	if err := run.CheckOwn(); err != nil {
		return nil, err
	}
	if v.IsArray(run) {
		return nil, &usage.Error{
			Message: fmt.Sprintf("%s is an array", v.From.Short(run.Path())), Hint: "name one element: JOB_INDEX, or RUN/tasks/INDEX",
		}
	}
	j := &Job{Run: run, ID: id, client: v.Slurm.On(run.Cluster()), environ: environ}
	var err error
	switch run.Spec().Kind {
	case "slurm":
		err = j.askSlurm(ctx, v)
	case "simulate":
		err = j.findSimulation(ctx, v)
	default:
		err = usage.Errorf("%s was started by hand, not submitted; its ranks are where it was started", v.From.Short(run.Path()))
	}
	if err == nil {
		err = j.readRanks()
	}
	return j, err
}

// askSlurm finds the job's nodes. Of a chain, the link that runs is the one that began last.
func (j *Job) askSlurm(ctx context.Context, v *runview.Viewer) error {
	if v.IsChain(j.Run) {
		history, err := j.Run.Ledger()
		if err != nil {
			return err
		}
		for _, event := range history {
			if event.Event == rundir.EventBegin {
				j.ID = event.Job
			}
		}
	}
	if j.ID == "" {
		return usage.Errorf("%s has no job", v.From.Short(j.Run.Path()))
	}
	parts, err := j.client.Parts(ctx, j.ID)
	if err != nil && !errors.Is(err, slurm.ErrUnknownJob) {
		return err
	}
	// a rebuilt cluster counts from 1 again
	parts = slices.DeleteFunc(parts, func(p slurm.Part) bool { return p.Name != j.Run.Spec().Name })
	if len(parts) == 0 {
		return ended(j.ID, v.HowEnded(ctx, j.Run, j.ID, ""))
	}
	for _, p := range parts {
		switch {
		case p.Running():
		case p.Ended():
			return ended(j.ID, v.HowEnded(ctx, j.Run, j.ID, p.State))
		default:
			why := text.Clean(p.State)
			if !strings.EqualFold(p.Reason, "none") {
				why += " (" + text.Clean(p.Reason) + ")"
			}
			return &usage.Error{Message: fmt.Sprintf("job %s does not run: %s", j.ID, why), Hint: "see ddpbatch status " + j.ID}
		}
	}
	j.parts = parts
	return nil
}

func (j *Job) findSimulation(ctx context.Context, v *runview.Viewer) error {
	fd, ok := runview.OpenSimulation(j.Run, j.ID)
	if !ok {
		return ended(j.ID, v.HowEnded(ctx, j.Run, j.ID, ""))
	}
	return unix.Close(fd)
}

// ended is the error for a job that is over.
func ended(id, how string) error {
	return &usage.Error{Message: fmt.Sprintf("job %s has ended: %s", id, how), Hint: "its logs: ddpbatch logs " + id}
}

// readRanks reads which ranks the newest attempt has begun, and where: each has logs that tell.
func (j *Job) readRanks() (err error) {
	if j.Attempt, err = j.Run.NewestAttempt(); err != nil || j.Attempt == 0 {
		return err
	}
	logs, err := j.Run.RankLogs(j.Attempt)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, log := range logs { // by rank, each with two streams
		if n := len(j.Ranks); n == 0 || j.Ranks[n-1].Number != log.Rank {
			j.Ranks = append(j.Ranks, Rank{log.Rank, log.Host})
		}
	}
	return nil
}

// Where says on which nodes something is to run. At most one of its fields is set.
type Where struct {
	Ranks []int  // on the nodes of these; in order, each once
	All   bool   // on those of all ranks
	Node  string // on this node
}

// selection is a Where that has been looked up.
type selection struct {
	ranks []int    // none: something runs once on each node
	hosts []string // in the order in which the job has them
}

// find looks up where something is to run: on all nodes of the job that have ranks, if w does not say.
func (j *Job) find(w Where) (s selection, err error) {
	if w.Node != "" {
		if hosts := j.hosts(); !slices.Contains(hosts, w.Node) {
			return s, usage.Errorf("node %s is none of job %s, which has %s", text.Clean(w.Node), j.ID,
				slurm.FoldHostlist(slices.Sorted(slices.Values(hosts))))
		}
		return selection{hosts: []string{w.Node}}, nil
	}
	wanted := j.Ranks
	if len(w.Ranks) > 0 || w.All {
		if wanted, err = j.named(w); err != nil {
			return s, err
		}
		for _, r := range wanted {
			s.ranks = append(s.ranks, r.Number)
		}
	}
	has := map[string]bool{}
	for _, r := range wanted {
		has[r.Host] = true
	}
	for _, host := range j.hosts() {
		if has[host] || len(j.Ranks) == 0 {
			s.hosts = append(s.hosts, host)
		}
		delete(has, host)
	}
	for host := range has {
		return s, fmt.Errorf("ranks of attempt %d of job %s have logs of %s, which is none of its nodes", j.Attempt, j.ID, text.Clean(host))
	}
	if len(s.hosts) == 0 { // of a simulated job, whose nodes are known by their ranks
		return s, j.notBegun()
	}
	return s, nil
}

// named are the ranks that w names.
func (j *Job) named(w Where) (found []Rank, err error) {
	if len(j.Ranks) == 0 {
		return nil, j.notBegun()
	}
	if w.All {
		return j.Ranks, nil
	}
	for _, number := range w.Ranks {
		at, ok := slices.BinarySearchFunc(j.Ranks, number, func(r Rank, number int) int { return r.Number - number })
		if !ok {
			var all []int
			for _, r := range j.Ranks {
				all = append(all, r.Number)
			}
			return nil, usage.Errorf("there is no rank %d in attempt %d of job %s: its ranks are %s", number, j.Attempt,
				j.ID, blame.Ranges(all))
		}
		found = append(found, j.Ranks[at])
	}
	return found, nil
}

func (j *Job) notBegun() error {
	return &usage.Error{
		Message: fmt.Sprintf("job %s has not begun the ranks of its attempt %d yet", j.ID, j.Attempt),
		Hint:    "wait, or name a node of it: --node NAME",
	}
}

// hosts are the job's nodes; of a simulated job, those that have ranks.
func (j *Job) hosts() (all []string) {
	for _, p := range j.parts {
		all = append(all, p.Nodes...)
	}
	if j.parts == nil {
		for _, r := range j.Ranks {
			if !slices.Contains(all, r.Host) {
				all = append(all, r.Host)
			}
		}
	}
	return all
}

// folded names numbers for a flag of this program's: "0-3,7".
func folded(ranks []int) string { return strings.ReplaceAll(spaced(ranks), " ", "") }

// spaced names numbers for a person: "0-3, 7".
func spaced(ranks []int) string { return blame.Ranges(ranks) }
