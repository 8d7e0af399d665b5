package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

type submitOptions struct {
	path      string
	sets      []string
	sbatch    []string // words after --
	testOnly  bool
	dryRun    bool
	parsable  bool
	wait      bool
	follow    bool
	skipCheck bool
	after     []string // JOB, perhaps with how it must end
}

func newSubmitCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "submit",
		Usage:       "render a job's batch script and submit it; prints the job id",
		ArgsUsage:   "JOB [-- SBATCH-OPTIONS]",
		Description: example("ddpbatch submit job.toml", "ddpbatch submit job.toml --set slurm.nodes=4 --follow -- --qos=high"),
		Flags: []cli.Flag{
			setFlag(), templateFlag(),
			&cli.StringSliceFlag{Name: "after",
				Usage: "begin after `JOB`, an id or a run directory, has ended; " +
					"JOB:ok, JOB:notok: has succeeded or failed (may be repeated)"},
			&cli.BoolFlag{Name: "test-only", Usage: "ask Slurm whether and when the job would run; submit nothing"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the script and the sbatch command; submit nothing"},
			&cli.BoolFlag{Name: "parsable", Usage: "print only the job id"},
			&cli.BoolFlag{Name: "wait", Usage: "wait for the job's end; exit with its code"},
			&cli.BoolFlag{Name: "follow", Usage: "show the job's output until its end; exit with its code"},
			&cli.BoolFlag{Name: "skip-data-check", Usage: "submit even if this machine does not see the data files"},
			jsonFlag(),
		},
		Action: withArg("job file", func(c *cli.Context, path string) error {
			if err := checkJSONAlone(c, "parsable", "follow"); err != nil {
				return err
			}
			return e.replying(c.Bool("json"), func(e *env) error {
				_, rest, _ := splitDash(c.Args().Slice())
				if err := checkSbatchWords(e, rest); err != nil {
					return err
				}
				return runSubmit(c.Context, e, submitOptions{
					path: e.abs(path), sets: withTemplate(e, c, c.StringSlice("set")), sbatch: rest,
					testOnly: c.Bool("test-only"), dryRun: c.Bool("dry-run"), parsable: c.Bool("parsable"),
					wait: c.Bool("wait"), follow: c.Bool("follow"), skipCheck: c.Bool("skip-data-check"),
					after: c.StringSlice("after"),
				})
			})
		}),
	}
}

// remarks returns functions that add to the job's own warnings: those for --test-only, before Slurm is asked.
func (o submitOptions) remarks(ctx context.Context, e *env) (all []func(*jobfile.Job) []jobfile.Remark) {
	all = append(all, (*jobfile.Job).BlankRemarks)
	if !o.skipCheck {
		all = append(all, e.fileRemarks())
	}
	if o.testOnly {
		var unasked error // if Slurm cannot answer, --test-only itself says why
		all = append(all, e.limitRemarks(ctx, o.sbatch, &unasked))
	}
	return all
}

func runSubmit(ctx context.Context, e *env, o submitOptions) error {
	job, text, err := loadJob(ctx, e, o.path, o.sets, o.remarks(ctx, e)...)
	if err != nil {
		return err
	}
	if !o.skipCheck {
		if err := job.CheckFiles(); err != nil {
			return fmt.Errorf("%w; or pass --skip-data-check if only the nodes see it", err)
		}
	}
	code, warnings, err := selectCode(ctx, e, job, o.path)
	warn(e, warnings)
	if err != nil {
		return err
	}
	template, err := readTemplate(ctx, job)
	if err != nil {
		return err
	}
	order := submission.Order{Words: o.sbatch, Links: job.Links(), Clusters: job.Clusters(),
		Event: rundir.Event{Detail: rundir.EventSubmit}}
	if order.First, err = afterWords(ctx, e, job, o); err != nil {
		return err
	}
	if o.dryRun { // it does not ask Slurm
		return trySubmit(ctx, e, job, template, order, o)
	}
	arraySize, err := takePieces(ctx, e, job, &order)
	switch {
	case err != nil:
		return err
	case o.testOnly:
		return trySubmit(ctx, e, job, template, order, o)
	}
	run, err := newRun(ctx, e, "slurm", job, o.path, text, o.sets, code)
	if err != nil {
		return err
	}
	release, claim, err := e.submitEnv().Claim(run, rundir.EventSubmit)
	switch {
	case errors.As(err, new(*usage.Error)):
		return err // another user or command has found the run, and is resuming it
	case err != nil:
		return errors.Join(err, run.Discard())
	}
	defer release()
	if err := recordSpec(run, template, arraySize); err != nil {
		return errors.Join(err, run.Discard())
	}
	if err := writeScript(run, job, template, o.sbatch); err != nil {
		return errors.Join(err, run.Discard())
	}
	ids, err := e.submitEnv().SubmitAll(ctx, run, claim, order)
	switch {
	case errors.Is(err, rundir.ErrClaimLost):
		return err // another command submits the run: nothing may be undone
	case err != nil && submission.NotSubmitted(err):
		if errors.Is(err, slurm.ErrRefused) {
			err = fmt.Errorf("%w%s", err, beyondLimits(ctx, e, job, o.sbatch))
		}
		return errors.Join(err, run.Discard(ids...))
	case err != nil:
		return fmt.Errorf("%w; the run directory is kept, because Slurm may have accepted the job nevertheless: "+
			"check with ddpbatch status %s",
			err, slurm.ShellQuote(run.Path()))
	}
	release()
	e.indexRun(run)
	offerExclude(e, run, job.Slurm, o.sbatch, ids[0])
	if o.parsable {
		fmt.Fprintln(e.Out, ids[0])
		warnStuck(ctx, e, run, job, o.sbatch, ids)
		return afterSubmit(ctx, e, run, ids[0], o.wait, o.follow)
	}
	words := slices.Concat(o.sbatch, order.First)
	if err := (accepted{run, job, ids, o.sets, words, order.Pieces, "", code.summary()}).announce(ctx, e); err != nil {
		return err
	}
	return afterSubmit(ctx, e, run, ids[0], o.wait, o.follow)
}

// accepted is what Slurm has accepted.
type accepted struct {
	run   *rundir.Dir
	job   *jobfile.Job
	ids   []string // of the job, the links of a chain, or the arrays of a sweep
	sets  []string
	words []string // of sbatch's command line for the first

	pieces []submission.Piece // of a sweep that consists of several arrays
	part   string             // which elements of an array run; empty: all, or it is not an array
	code   string             // which copy of the code is used; may be empty
}

// announce prints what Slurm has accepted, and what keeps the first job from starting.
func (a accepted) announce(ctx context.Context, e *env) error {
	if e.reply == nil {
		printSubmitted(e, a.job, a.run, a.ids)
		if a.part != "" {
			fmt.Fprintf(e.Out, "runs: %s\n", a.part)
		}
		if a.code != "" {
			fmt.Fprintf(e.Out, "code: %s\n", a.code)
		}
		warnStuck(ctx, e, a.run, a.job, a.words, a.ids)
		return nil
	}
	warnStuck(ctx, e, a.run, a.job, a.words, a.ids)
	asked := requestOf(a.job, a.sets, a.words).withArrays(a.pieces)
	return printJSON(e, jobReply{a.ids, a.job.Name, a.run.Path(), asked, e.reply.warnings(), a.run.Cluster()})
}

// printSubmitted prints which jobs Slurm has accepted for a run: one, the links of a chain, or the arrays of a sweep.
func printSubmitted(e *env, job *jobfile.Job, run *rundir.Dir, ids []string) {
	on := ""
	if cluster := run.Cluster(); cluster != "" {
		on = " on cluster " + cluster
	}
	fmt.Fprintf(e.Out, "submitted job %s%s: %s\n", ids[0], on, job.Summary())
	switch {
	case len(ids) > 1 && job.Sweep != nil:
		fmt.Fprintf(e.Out, "the sweep is submitted as %d arrays, because the cluster does not permit larger ones: also %s\n",
			len(ids), submission.NameJobs(ids[1:]))
	case len(ids) > 1:
		fmt.Fprintf(e.Out, "chain of %d: then %s, each when those before it have ended\n", len(ids), submission.NameJobs(ids[1:]))
	}
	fmt.Fprintf(e.Out, "run directory: %s\n", e.short(run.Path()))
}

// afterWords returns the option of sbatch for --after, combined with what the job itself waits for. It returns none without --after.
func afterWords(ctx context.Context, e *env, job *jobfile.Job, o submitOptions) ([]string, error) {
	if len(o.after) == 0 {
		return nil, nil
	}
	d, err := readDefaults(e)
	if err == nil {
		err = d.CheckFlag("--after", "dependency")
	}
	if err != nil {
		return nil, err
	}
	conditions := []string{job.Slurm.Dependency(o.sbatch)}
	for _, word := range o.after {
		condition, err := e.viewer().After(ctx, []string{job.RunDir, e.abs("runs")}, word, job.Clusters())
		if err != nil {
			return nil, err
		}
		if condition == "" {
			fmt.Fprintf(e.Err, "ddpbatch: --after %s: the condition is already met\n", word)
		}
		conditions = append(conditions, condition)
	}
	all, err := slurm.JoinDependencies(conditions...)
	if err != nil {
		return nil, usage.Errorf("--after: %v; leave one of them out", err)
	}
	if all == conditions[0] { // sbatch gets it in any case
		return nil, nil
	}
	return []string{"--dependency=" + all}, nil
}

// takePieces splits a sweep that has more elements than the cluster permits in an array into as few arrays as possible, and returns the
// number of elements in each; 0 means one array. If Slurm does not report its limit, sbatch decides. If the job may go to several clusters,
// the lowest limit counts.
func takePieces(ctx context.Context, e *env, job *jobfile.Job, order *submission.Order) (size int, err error) {
	if job.Sweep == nil {
		return 0, nil
	}
	n, most := job.Sweep.Len(), -1
	for cluster := range strings.SplitSeq(job.Clusters(), ",") {
		config, err := e.submitEnv().Slurm.On(cluster).ClusterConfig(ctx)
		if err == nil && config.MaxArraySize >= 0 && (most < 0 || config.MaxArraySize < most) {
			most = config.MaxArraySize
		}
	}
	switch {
	case most < 0 || n <= most:
		return 0, nil
	case most == 0:
		return 0, usage.Errorf("this cluster does not permit arrays (MaxArraySize in slurm.conf), which a sweep needs: " +
			"submit a job for each")
	}
	array, err := job.Array()
	if err == nil {
		size = submission.PieceSize(n, most)
		order.Pieces, err = submission.Pieces(*array, size)
	}
	return size, err
}

// warnStuck warns of a job that Slurm has accepted but will not start in its present form, or that is held. ids are the jobs of the run, of
// which the first one tells about all. words are further options of sbatch. It is not an error if Slurm cannot be asked.
func warnStuck(ctx context.Context, e *env, run *rundir.Dir, job *jobfile.Job, words, ids []string) {
	id := ids[0]
	jobs, err := e.viewer().Jobs(ctx, run.Cluster(), []string{id})
	if err != nil {
		return
	}
	for _, known := range jobs {
		if known.Stuck() {
			if known.Reason == "JobHeldUser" {
				why := "is held: Slurm's reason is JobHeldUser" // such as by --hold after --
				if _, held := job.Slurm.Get("hold"); held {
					why = "is held, as slurm.hold says"
				}
				fmt.Fprintf(e.Err, "ddpbatch: job %s %s; to release it: scontrol%s release %s\n", id, why,
					onCluster(run.Cluster()), strings.Join(ids, ","))
				return
			}
			fmt.Fprintf(e.Err, "ddpbatch: job %s will not start in its present form: "+
				"Slurm's reason is %s%s; see JOB REASON CODES in squeue(1); "+
				"to cancel it: ddpbatch cancel %s\n", id, known.Reason, beyondLimits(ctx, e, job, words),
				slurm.ShellQuote(slurm.JobID{ID: id, Cluster: run.Cluster()}.String()))
			return
		}
	}
}

// onCluster returns the option of Slurm's commands that names a cluster, after a blank, or "" for the default cluster.
func onCluster(cluster string) string {
	if cluster == "" {
		return ""
	}
	return " -M " + slurm.ShellQuote(cluster)
}

// beyondLimits returns what check --slurm finds a job to ask for beyond the limits of its partition, each with "; " before it. It returns
// "" if there is nothing, or if Slurm does not answer. words are further options of sbatch.
func beyondLimits(ctx context.Context, e *env, job *jobfile.Job, words []string) (found string) {
	var unasked error
	for _, remark := range e.limitRemarks(ctx, words, &unasked)(job) {
		switch remark.Key {
		case "slurm.partition", "launch.grace": // Slurm itself says the one, and does not know of the other
		default:
			found += "; " + remark.Message
		}
	}
	return found
}

// checkSbatchWords checks the words after --, which go to sbatch.
func checkSbatchWords(e *env, words []string) error {
	if len(words) == 0 {
		return nil
	}
	for _, word := range words {
		if err := slurm.CheckExtra(word); err != nil {
			return usage.Errorf("%v", err)
		}
	}
	d, err := readDefaults(e)
	if err != nil {
		return err
	}
	return d.CheckWords(words)
}

// recordSpec stores in the run, for later resumes, the user's script template, and the number of elements in each of its arrays.
func recordSpec(run *rundir.Dir, template string, arraySize int) error {
	if template == "" && arraySize == 0 {
		return nil
	}
	spec := run.Spec()
	spec.Template, spec.ArraySize = template, arraySize
	return run.WriteSpec(spec)
}

// writeScript renders a job's batch script into its run directory.
func writeScript(run *rundir.Dir, job *jobfile.Job, template string, words []string) error {
	script, err := renderScript(job, run.Path(), template, words)
	if err != nil {
		return err
	}
	return run.WriteScript(script)
}

// submitEnv returns what package submission needs to know of this process. Slurm's commands get the environment that jobs should inherit.
// SLURM_CLUSTERS, which may come from another shell, does not decide on which cluster a run is; the commands are told that (see
// withClusters).
func (e *env) submitEnv() submission.Env {
	kept, dropped := slurm.Scrub(e.Environ)
	kept = slices.DeleteFunc(kept, func(entry string) bool { return strings.HasPrefix(entry, clustersVariable+"=") })
	return submission.Env{
		Hostname: e.Hostname, Now: e.Now, Log: e.log(), Slurm: &slurm.Client{Environ: kept}, Dropped: dropped,
		Cluster: e.get("SLURM_CLUSTER_NAME"),
	}
}
