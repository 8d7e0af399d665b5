package runview

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"ddpbatch/internal/lines"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	streams "ddpbatch/mpi/launch/output"
)

// Logs says which part of a run's output is shown.
type Logs struct {
	Name        string // how the user named the run; the ID of a job before the newest means the output of that job
	OfRanks     bool   // the output of the ranks; otherwise the job's log
	Ranks       []int  // empty: all
	First, Last int    // attempts; First 0: the newest; Last 0: no end, including later ones
	Follow      bool   // until the job's end
}

// ShowLogs shows the output of a run, whose newest job is id. If the output was followed, the error says how the job ended.
func (v *Viewer) ShowLogs(ctx context.Context, run *rundir.Dir, id string, o Logs) error {
	array := isArray(run)
	if job := earlierJob(run, id, o.Name); job != "" && !(array && o.OfRanks) {
		return v.showEarlier(run, job, id, o)
	}
	if array {
		var err error
		if id, err = wholeJob(run); err != nil {
			return err
		}
	}
	l := rankLogs{v: v, run: run, ranks: o.Ranks, first: o.First, last: o.Last}
	switch {
	case o.OfRanks && array && o.Follow:
		return l.followArray(ctx, id)
	case o.OfRanks && array:
		return l.printArray()
	case o.OfRanks && o.Follow:
		return l.follow(ctx, id)
	case o.OfRanks:
		return l.print()
	case array && o.Follow:
		return (&arrayLog{v: v, run: run}).follow(ctx, id)
	case array:
		return (&arrayLog{v: v, run: run}).print()
	case o.Follow:
		return v.Follow(ctx, run, id)
	}
	return v.printLog(run, id)
}

// rankLogs are the log files of a run's ranks to show.
type rankLogs struct {
	v     *Viewer
	run   *rundir.Dir
	ranks []int // empty: all

	first, last int    // attempts; first 0: the newest; last 0: no end, including later ones
	element     string // the index of an array's element, if several elements are shown; otherwise empty
}

// earlierJob returns the job whose ID is name, if it is a job of the run that was submitted before the newest one, id. It returns "" for
// jobs that belong to the newest submission: the other links of a chain, the arrays that form a sweep, and an array of which only single
// elements were resumed.
func earlierJob(run *rundir.Dir, id, name string) string {
	job, _, _ := strings.Cut(name, ";")
	if !rundir.IsJobID(name) || job == id || run.Spec().ArraySize > 0 {
		return ""
	}
	if c := chainOf(run); c != nil && slices.Contains(c.jobs, job) {
		return ""
	}
	if isArray(run) && !submittedAgain(run, job) {
		return ""
	}
	return job
}

// submittedAgain reports whether an array was submitted as another job after the given one. A resume of a single element does not count:
// the array's job may still run the others.
func submittedAgain(run *rundir.Dir, job string) bool {
	events := submissions(run)
	at := slices.IndexFunc(events, func(e rundir.Event) bool {
		id, _ := e.SubmittedJob()
		return id == job
	})
	return slices.ContainsFunc(events[at+1:], func(e rundir.Event) bool { return e.Element == nil })
}

// showEarlier shows the output of a job of a run whose newest job is id. The job has ended, so there is nothing to follow.
func (v *Viewer) showEarlier(run *rundir.Dir, job, id string, o Logs) error {
	fmt.Fprintf(v.Err, "job %s has ended; the newest job of its run is %s\n", job, id)
	if !o.OfRanks && isArray(run) {
		return (&arrayLog{v: v, run: run, only: job}).print()
	}
	if !o.OfRanks {
		return v.printJob(run, job)
	}
	l := rankLogs{v: v, run: run, ranks: o.Ranks, first: o.First, last: o.Last}
	if l.first == 0 {
		attempt, err := lastAttempt(run, job)
		if err != nil {
			return err
		}
		l.first, l.last = attempt, attempt
	}
	return l.print()
}

// lastAttempt returns the newest attempt that began in a job of the run.
func lastAttempt(run *rundir.Dir, job string) (int, error) {
	history, err := run.Ledger()
	if err != nil {
		return 0, err
	}
	for _, event := range slices.Backward(history) {
		if event.Event == rundir.EventBegin && event.Job == job {
			return event.Attempt, nil
		}
	}
	return 0, fmt.Errorf("job %s has %w: no attempt began in it", job, errNoLogs)
}

// printLog shows the log of the newest job, or of the links of the chain.
func (v *Viewer) printLog(run *rundir.Dir, id string) error {
	if c := chainOf(run); c != nil {
		return v.printChain(run, c)
	}
	return v.printJob(run, id)
}

// printJob shows the log of one job.
func (v *Viewer) printJob(run *rundir.Dir, id string) error {
	tail := &tailer{path: run.SlurmLogPath(id), to: v.Out}
	defer tail.close()
	if err := tail.copy(); err != nil {
		return err
	}
	if tail.file == nil {
		fmt.Fprintln(v.Err, "no output yet")
	}
	return nil
}

// print shows all requested attempts, rank by rank.
func (l rankLogs) print() error {
	l, err := l.resolved()
	if err != nil {
		return err
	}
	newest, err := l.run.NewestAttempt()
	if err != nil {
		return err
	}
	if newest == 0 {
		fmt.Fprintln(l.v.Err, "no output yet")
		return nil
	}
	if l.last == 0 {
		l.last = newest
	}
	for n := l.first; n <= l.last; n++ {
		if err := l.printAttempt(n); err != nil {
			// an attempt may have no logs, if its ranks were never started
			if l.first == l.last || !errors.Is(err, errNoLogs) {
				return err
			}
			l.v.Log.Warn(err.Error())
		}
	}
	return nil
}

func (l rankLogs) printAttempt(attempt int) error {
	logs, err := l.list(attempt)
	if err != nil {
		return err
	}
	for _, rank := range l.ranks {
		if !slices.ContainsFunc(logs, func(log rundir.RankLog) bool { return log.Rank == rank }) {
			err := fmt.Errorf("attempt %d has %w of rank %d in %s", attempt, errNoLogs, rank, l.run.LogsPath(attempt))
			if len(logs) == 0 {
				return err
			}
			l.v.Log.Warn(err.Error())
		}
	}
	if len(logs) == 0 {
		return fmt.Errorf("attempt %d has %w in %s", attempt, errNoLogs, l.run.LogsPath(attempt))
	}
	printed := map[int]bool{}
	for _, log := range logs {
		some, err := l.printFile(log)
		if err != nil {
			return err
		}
		printed[log.Rank] = printed[log.Rank] || some
	}
	for _, rank := range slices.Sorted(maps.Keys(printed)) {
		if !printed[rank] && len(l.ranks) > 0 {
			fmt.Fprintf(l.v.Err, "%srank %d printed nothing in attempt %d\n", l.ofElement(": "), rank, attempt)
		}
	}
	return nil
}

// printFile shows a log, and reports whether there is anything in it.
func (l rankLogs) printFile(log rundir.RankLog) (printed bool, err error) {
	tail := &tailer{path: log.Path, to: l.v.Out}
	defer tail.close()
	tail.head = func() {
		printed = true
		fmt.Fprintf(l.v.Err, "==> %s <==\n", text.Clean(l.v.From.Short(log.Path)))
	}
	if !l.labelled() {
		err = tail.copy()
		return printed, err
	}
	label := l.label(log)
	tail.to = label
	err = errors.Join(tail.copy(), label.Finish())
	return printed, err
}

// errNoLogs means that an attempt has no log of the requested ranks.
var errNoLogs = errors.New("no log")

// resolved returns l with the number of its first attempt.
func (l rankLogs) resolved() (rankLogs, error) {
	if l.first > 0 {
		return l, nil
	}
	newest, err := l.run.NewestAttempt()
	l.first = max(1, newest)
	return l, err
}

// list lists the requested logs of an attempt.
func (l rankLogs) list(attempt int) ([]rundir.RankLog, error) {
	logs, err := l.run.RankLogs(attempt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("attempt %d has %w: %s has no such attempt", attempt, errNoLogs, l.v.From.Short(l.run.Path()))
	}
	return slices.DeleteFunc(logs, func(log rundir.RankLog) bool { return !l.wanted(log.Rank) }), err
}

func (l rankLogs) wanted(rank int) bool { return len(l.ranks) == 0 || slices.Contains(l.ranks, rank) }

// labelled reports whether each line must say which rank wrote it.
func (l rankLogs) labelled() bool { return len(l.ranks) != 1 || l.element != "" }

func (l rankLogs) label(log rundir.RankLog) *lines.Writer {
	label := ""
	if l.element != "" {
		label = elementLabel(l.element)
	}
	if len(l.ranks) != 1 {
		label += streams.Label(streams.DefaultPrefix, streams.Worker{Host: log.Host, Rank: log.Rank})
	}
	return &lines.Writer{To: l.v.Out, Label: label}
}

// ofElement returns "element 3" and end, or "" if only one element is shown.
func (l rankLogs) ofElement(end string) string {
	if l.element == "" {
		return ""
	}
	return "element " + l.element + end
}
