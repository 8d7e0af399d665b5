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

// Job is a running job, as seen by a user's command.
type Job struct {
	Run     *rundir.Dir
	ID      string // as the user writes it: "12", "12_3"
	Attempt int    // the newest; 0 if none has begun
	Ranks   []Rank // of that attempt, sorted by number; empty if it has not started them

	client  *slurm.Client // for the job's cluster
	environ []string      // for the pretend nodes of a simulated job
	parts   []slurm.Part  // nil if the job is simulated
}

// Rank is a rank and the node that it was started on.
type Rank struct {
	Number int    `json:"rank"`
	Host   string `json:"host"`
}

// Open finds out on which nodes the job id of a run runs. The run must belong to the caller, because its copy of the program is executed.
// If the job does not run, the error is a [usage.Error] that says what became of it. environ is the caller's environment, for the pretend
// nodes of a simulated job.
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
		err = usage.Errorf("%s was started by hand, not submitted; its ranks run on the machine where it was started",
			v.From.Short(run.Path()))
	}
	if err == nil {
		err = j.readRanks()
	}
	return j, err
}

// askSlurm finds the job's nodes. In a chain, the running link is the one that began last.
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
	// A rebuilt cluster counts job IDs from 1 again, so that another job may have the same ID.
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
			return &usage.Error{Message: fmt.Sprintf("job %s is not running: %s", j.ID, why), Hint: "see ddpbatch status " + j.ID}
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

// ended returns the error for a job that has ended.
func ended(id, how string) error {
	return &usage.Error{Message: fmt.Sprintf("job %s has ended: %s", id, how), Hint: "its logs: ddpbatch logs " + id}
}

// readRanks reads from the names of the log files which ranks the newest attempt has started, and on which nodes.
func (j *Job) readRanks() (err error) {
	if j.Attempt, err = j.Run.NewestAttempt(); err != nil || j.Attempt == 0 {
		return err
	}
	logs, err := j.Run.RankLogs(j.Attempt)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, log := range logs { // sorted by rank, two streams for each
		if n := len(j.Ranks); n == 0 || j.Ranks[n-1].Number != log.Rank {
			j.Ranks = append(j.Ranks, Rank{log.Rank, log.Host})
		}
	}
	return nil
}

// Where says on which nodes a command runs. At most one of its fields is set.
type Where struct {
	Ranks []int  // on the nodes of these ranks; sorted, without duplicates
	All   bool   // on the nodes of all ranks
	Node  string // on this node
}

// selection is the result of looking up a Where.
type selection struct {
	ranks []int    // empty: the command runs once on each node
	hosts []string // in the job's order
}

// find looks up where a command runs. Without a choice in w, it runs on all of the job's nodes that have ranks.
func (j *Job) find(w Where) (s selection, err error) {
	if w.Node != "" {
		if hosts := j.hosts(); !slices.Contains(hosts, w.Node) {
			return s, usage.Errorf("node %s does not belong to job %s, whose nodes are %s", text.Clean(w.Node), j.ID,
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
		return s, fmt.Errorf("attempt %d of job %s has logs of ranks on %s, which is not one of the job's nodes", j.Attempt, j.ID,
			text.Clean(host))
	}
	if len(s.hosts) == 0 { // only for a simulated job, whose nodes are known by their ranks
		return s, j.notBegun()
	}
	return s, nil
}

// named returns the ranks that w names.
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
			return nil, usage.Errorf("rank %d does not exist in attempt %d of job %s: its ranks are %s", number, j.Attempt,
				j.ID, blame.Ranges(all))
		}
		found = append(found, j.Ranks[at])
	}
	return found, nil
}

func (j *Job) notBegun() error {
	return &usage.Error{
		Message: fmt.Sprintf("attempt %[2]d of job %[1]s has not started its ranks yet", j.ID, j.Attempt),
		Hint:    "wait, or name one of the job's nodes with --node NAME",
	}
}

// hosts returns the job's nodes. For a simulated job these are the nodes that have ranks.
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

// folded formats ranks for a flag of this program: "0-3,7".
func folded(ranks []int) string { return strings.ReplaceAll(spaced(ranks), " ", "") }

// spaced formats ranks for people: "0-3, 7".
func spaced(ranks []int) string { return blame.Ranges(ranks) }
