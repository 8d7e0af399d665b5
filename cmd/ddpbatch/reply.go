package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
)

// A reply is the one object that a command with --json prints. Until then it holds back what the command writes to standard error, which
// becomes the object's warnings.
type reply struct {
	stderr io.Writer

	mu   sync.Mutex
	held strings.Builder
	over bool // nothing is held back any more
}

// Write takes what the command writes to standard error.
func (r *reply) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return r.stderr.Write(p)
	}
	return r.held.Write(p)
}

// warnings ends the holding back, and returns what was held, one text per line.
func (r *reply) warnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	list := []string{} // never null
	for line := range strings.Lines(r.held.String()) {
		line = text.Clean(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "ddpbatch: "))
		if !slices.Contains(list, line) {
			list = append(list, line)
		}
	}
	r.held.Reset()
	return list
}

// release writes what is still held, because no object contains it.
func (r *reply) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	io.WriteString(r.stderr, r.held.String())
	r.held.Reset()
}

// checkJSONAlone returns an error for flags that request another output than --json.
func checkJSONAlone(c *cli.Context, others ...string) error {
	for _, other := range others {
		if c.Bool("json") && c.Bool(other) {
			return &usage.Error{Message: "--json and --" + other + " request different outputs", Hint: "leave one of them out"}
		}
	}
	return nil
}

// replying runs a command. With --json it has a reply to print. If the command ends without one, its warnings are printed as usual.
func (e *env) replying(asJSON bool, do func(e *env) error) error {
	if !asJSON {
		return do(e)
	}
	r := &reply{stderr: e.Err}
	defer r.release()
	with := *e
	with.Err, with.reply = r, r
	return do(&with)
}

// request is what a job asks for, in JSON (docs/cli/json.md).
type request struct {
	Summary string         `json:"summary"`
	Nodes   int            `json:"nodes"`
	Nproc   any            `json:"nproc_per_node"` // a number, a list of them, or a word, as in a job file
	Slurm   map[string]any `json:"slurm"`          // options of [slurm], by sbatch's names; true for an option without a value
	Sbatch  []string       `json:"sbatch"`         // further arguments for sbatch
	Set     []string       `json:"set"`            // overrides

	Arrays [][]string `json:"arrays,omitempty"` // of a sweep of several arrays: sbatch's arguments for each

	Elements int `json:"elements"` // number of elements of its array or sweep; 0: neither
	Links    int `json:"links"`    // number of links of its chain; 0: not a chain
}

// requestOf returns what a job requests. Values that may be secret are blanked.
func requestOf(job *jobfile.Job, sets, words []string) request {
	r := request{
		Summary: job.Summary(), Nodes: job.Nodes(), Nproc: nprocJSON(job.Launch.NprocPerNode),
		Slurm: map[string]any{}, Sbatch: redact.Words(slices.Concat(job.Slurm.Extra, words)), Set: blankedSets(sets),
	}
	for _, o := range job.Slurm.List {
		if r.Slurm[o.Name] = any(redact.Text(o.Value)); o.Flag {
			r.Slurm[o.Name] = true
		}
	}
	if array, err := job.Array(); err == nil && array != nil {
		r.Elements = len(array.Indices)
	}
	if links := job.Links(); links > 1 {
		r.Links = links
	}
	return r
}

// withArrays adds the arrays of a sweep that consists of several.
func (r request) withArrays(pieces []submission.Piece) request {
	for _, piece := range pieces {
		r.Arrays = append(r.Arrays, piece.Words)
	}
	return r
}

// nprocJSON returns a number of ranks in the form of a job file.
func nprocJSON(n launch.Nproc) any {
	switch {
	case n.Word != "":
		return n.Word
	case len(n.Counts) == 1:
		return n.Counts[0]
	}
	return n.Counts
}

// blankedSets returns overrides, never nil. A value that contains a possible secret is blanked as a whole, because any item of a list may
// be one.
func blankedSets(sets []string) []string {
	list := make([]string, len(sets))
	for i, set := range sets {
		list[i] = set
		key := jobfile.SetKey(set)
		ofTable := strings.Contains(set, "{") && redact.Named(set) // its keys may be written in many ways
		if redact.Named(key) || ofTable || redact.Text(set) != set || givesByFlag(set) {
			list[i] = key + "=" + redact.Blank
		}
	}
	return list
}

// givesByFlag reports whether an override has a possible secret after a flag whose name says so.
func givesByFlag(set string) bool {
	items := strings.FieldsFunc(set, func(r rune) bool { return strings.ContainsRune(" \t\n,[]=\"'", r) })
	for i, item := range items {
		if i > 0 && redact.FollowsFlag(items[i-1], item) {
			return true
		}
	}
	return false
}

// jobReply is the reply of every command that concerns one job.
type jobReply struct {
	Jobs     []string `json:"jobs"` // IDs: one, or those of all links of a chain, or none
	Name     string   `json:"name"`
	RunDir   string   `json:"run_dir"`
	Asked    request  `json:"asked"`
	Warnings []string `json:"warnings"`
	Cluster  string   `json:"cluster,omitempty"` // of Jobs; empty: the default cluster
}

// scriptReply is the reply of a command that shows a batch script.
type scriptReply struct {
	jobReply
	Script string   `json:"script"`                  // with values blanked that may be secret
	Sbatch []string `json:"command,omitempty"`       // the command that would submit it
	Later  []string `json:"later_command,omitempty"` // of a chain: for each later link, with ID:... for the IDs
}

// endReply is the reply of a command in which a job ran to its end.
type endReply struct {
	jobReply
	Exit int      `json:"exit"` // of the command
	Ends []runEnd `json:"ends"`
}

// runEnd is the end of the newest attempt of a run, or of an element of an array.
type runEnd struct {
	Job     string `json:"job"`
	RunDir  string `json:"run_dir"`
	Attempt int    `json:"attempt"` // 0: none has begun
	Cause   string `json:"cause"`   // empty: it left no verdict
	Exit    int    `json:"exit"`
	Step    int64  `json:"step"`
	Message string `json:"message"`
	Link    int    `json:"link"`  // of a chain: the link of that attempt, from 1; otherwise 0
	Links   int    `json:"links"` // number of links of the chain
}

// endsOf returns the ends of a run, or of the elements of a whole array.
func endsOf(run *rundir.Dir) (ends []runEnd, err error) {
	all, err := run.Elements()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		all = []*rundir.Dir{run}
	}
	for _, d := range all {
		end := runEnd{RunDir: d.Path()}
		if end.Job, err = d.JobID(); err != nil {
			return nil, err
		}
		if end.Attempt, err = d.NewestAttempt(); err != nil {
			return nil, err
		}
		if v, err := d.Verdict(end.Attempt); err == nil {
			end.Cause, end.Exit, end.Step, end.Message = v.Cause, v.Exit, v.Step, v.Message
		}
		if end.Link, end.Links, err = linkOfAttempt(d, end.Attempt); err != nil {
			return nil, err
		}
		ends = append(ends, end)
	}
	return ends, nil
}

// linkOfAttempt returns which link of a chain a run's attempt belonged to, and the number of links; zeros if it is not a chain.
func linkOfAttempt(d *rundir.Dir, attempt int) (link, links int, err error) {
	history, err := d.Ledger()
	for _, event := range history {
		if event.Event == rundir.EventBegin && event.Attempt == attempt {
			link, links = event.Link, event.Links
		}
	}
	return link, links, err
}

// inProcess runs a job in this process. With --json what the job prints goes to standard error, and the reply says how it ended.
func (e *env) inProcess(run *rundir.Dir, job *jobfile.Job, do func(e *env) error) error {
	if e.reply == nil {
		return do(e)
	}
	warnings := e.reply.warnings()
	console := *e
	console.Out, console.Err, console.reply = e.reply.stderr, e.reply.stderr, nil
	err := do(&console)
	ends, unread := endsOf(run)
	if unread != nil {
		return cmp.Or(err, unread)
	}
	jobs := []string{}
	if id, idErr := run.Whole().JobID(); idErr == nil && id != "" {
		jobs = append(jobs, id)
	}
	return cmp.Or(err, printJSON(e, endReply{
		jobReply: jobReply{jobs, job.Name, run.Path(), requestOf(job, run.Spec().Sets, nil), warnings, run.Cluster()},
		Exit:     exitCode(err), Ends: ends,
	}))
}

// sentences is a log handler for the log that a reply holds: one line of text per warning.
type sentences struct {
	to    io.Writer
	attrs []slog.Attr
}

func (s sentences) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (s sentences) Handle(_ context.Context, r slog.Record) error {
	var about []string
	add := func(a slog.Attr) bool {
		about = append(about, a.Key+" "+a.Value.String())
		return true
	}
	for _, a := range s.attrs {
		add(a)
	}
	r.Attrs(add)
	line := r.Message
	if len(about) > 0 {
		line += " (" + strings.Join(about, ", ") + ")"
	}
	_, err := fmt.Fprintln(s.to, text.Clean(redact.Text(line)))
	return err
}

func (s sentences) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sentences{s.to, slices.Concat(s.attrs, attrs)}
}

func (s sentences) WithGroup(string) slog.Handler { return s }
