package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/defaults"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
	"ddpbatch/slurm"
	"ddpbatch/templates"
)

// newRun creates the run directory of a job, with the job file as it was read, the resolved spec, a copy of this program and, unless code
// is nil, a copy of the code.
func newRun(
	ctx context.Context, e *env, kind string, job *jobfile.Job, source string, text []byte, sets []string, code *codeCopy,
) (*rundir.Dir, error) {
	spec, err := job.Spec(rundir.Spec{Kind: kind, Version: version, Source: source, Sets: sets})
	if err != nil {
		return nil, err
	}
	binary, err := e.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the file of this program: %w", err)
	}
	run, err := rundir.Create(rundir.CreateConfig{
		Parent: job.RunDir, Spec: spec, JobFile: text, Binary: binary, Now: e.Now(), Code: code.writer(ctx),
	})
	if err == nil {
		warnExposed(e, run)
	}
	return run, err
}

// checkOwn makes sure that a run to act on is the caller's.
func checkOwn(e *env, run *rundir.Dir) error {
	err := run.CheckOwn()
	if err == nil {
		warnExposed(e, run)
	}
	return err
}

// warnExposed warns if others can change the path to a run. Projects are shared that way, so it is only a warning.
func warnExposed(e *env, run *rundir.Dir) {
	if path := run.ExposedAbove(); path != "" {
		e.log().Warn("other users can change this folder, and replace this run by one of theirs; "+
			"set run_dir to a folder below one of your own", "folder", path)
	}
}

// readJob reads the text of a job file.
func readJob(ctx context.Context, path string) ([]byte, error) {
	text, err := jobfile.ReadText(ctx, path)
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		return nil, &usage.Error{Message: fmt.Sprintf("read the job file: %v", err), Hint: `"ddpbatch init" writes one to start from`}
	}
	return text, nil
}

// loadJob reads a job file for a command that acts on it. It prints warnings, including those that remarks find.
func loadJob(ctx context.Context, e *env, path string, sets []string, remarks ...func(*jobfile.Job) []jobfile.Remark) (
	*jobfile.Job, []byte, error,
) {
	text, err := readJob(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	job, warnings, err := parseJob(e, path, text, sets, remarks...)
	warn(e, warnings)
	return job, text, err
}

// parseJob parses a job, whose path is absolute, with the defaults of the site and the user. The warnings include those that remarks find.
func parseJob(e *env, path string, text []byte, sets []string, remarks ...func(*jobfile.Job) []jobfile.Remark) (
	*jobfile.Job, []jobfile.Fault, error,
) {
	d, err := e.withClusters(readDefaults(e))
	if err != nil {
		return nil, nil, err
	}
	return d.ParseWith(e.short(path), filepath.Dir(path), text, sets, remarks...)
}

const clustersVariable = "SLURM_CLUSTERS"

// withClusters adds SLURM_CLUSTERS to the defaults, as slurm.clusters, for a job to submit. The run stores it, so that later commands look
// for its jobs on these clusters even if the variable differs then. It returns err if that is not nil.
func (e *env) withClusters(d *jobfile.Defaults, err error) (*jobfile.Defaults, error) {
	clusters := e.get(clustersVariable)
	if err != nil || clusters == "" {
		return d, err
	}
	if !slurm.AreClusters(clusters) {
		return nil, usage.Errorf("%s is %q: name one cluster or several, separated by commas (\"a,b\"), there or in "+
			"slurm.clusters, or unset it",
			clustersVariable, clusters)
	}
	return jobfile.ParseDefaults(append(d.Files(), rundir.DefaultsFile{Name: clustersVariable, Text: fmt.Sprintf("slurm.clusters = %q\n",
		clusters)})...)
}

// fileRemarks finds files that a job names and this machine does not see.
func (e *env) fileRemarks() func(*jobfile.Job) []jobfile.Remark {
	searchPath, _ := e.lookup("PATH")
	return jobfile.FileRemarks(searchPath)
}

// askPatience is how long Slurm may take to report the limits of a partition.
const askPatience = 5 * time.Second

// limitRemarks asks Slurm for the limits of the job's partitions, and finds what exceeds them. words are further options of sbatch. If
// Slurm does not answer, it finds nothing, and *failed says why.
func (e *env) limitRemarks(ctx context.Context, words []string, failed *error) func(*jobfile.Job) []jobfile.Remark {
	return func(job *jobfile.Job) (all []jobfile.Remark) {
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		clusters := job.Clusters()
		if strings.Contains(clusters, ",") {
			*failed = fmt.Errorf("slurm.clusters = %q names several clusters, each with its own limits", clusters)
			return nil
		}
		client := e.submitEnv().Slurm.On(clusters)
		names, said := job.Partitions(words)
		for i, name := range names {
			if !said[i] {
				continue // another partition, or the first of several with enough room
			}
			partition, err := client.Partition(ctx, name)
			cluster := jobfile.Cluster{Partition: partition}
			switch {
			case errors.Is(err, slurm.ErrNoPartition):
				cluster.Missing = err
			case err != nil:
				*failed = err
				return nil
			}
			if i == 0 {
				if config, err := client.ClusterConfig(ctx); err == nil {
					cluster.KillWait = config.KillWait
				}
			}
			all = append(all, job.LimitRemarks(i, cluster, words)...)
		}
		return all
	}
}

// defaultsPlaces returns the paths of the site's and the user's own files.
func (e *env) defaultsPlaces() defaults.Places {
	return defaults.Places{Site: e.SiteFile, User: defaults.UserFolder(e.lookup)}
}

// parsePretend parses a job to simulate. Some of its overrides come from flags of simulate or rehearse, and do not concern the site. Those
// that the user has written are checked by jobSource.
func parsePretend(e *env, source jobText) (*jobfile.Job, []jobfile.Fault, error) {
	d, err := readDefaults(e)
	if err != nil {
		return nil, nil, err
	}
	return d.FreeSets().ParseWith(e.short(source.path), filepath.Dir(source.path), source.text, source.sets, (*jobfile.Job).BlankRemarks)
}

// readDefaults reads the defaults of the site and the user, once.
func readDefaults(e *env) (*jobfile.Defaults, error) {
	if e.defaults == nil {
		places := e.defaultsPlaces()
		d, err := places.Read()
		if above := places.Exposed(); above != "" && err == nil {
			e.log().Warn("other users can change this folder, "+
				"and so the defaults of your jobs; to prevent that: chmod go-w", "folder", above)
		}
		if err != nil && !errors.Is(err, vfs.ErrExposed) && !errors.As(err, new(jobfile.Faults)) {
			err = &usage.Error{Message: err.Error()}
		}
		e.defaults = &readOnce{d, err}
	}
	return e.defaults.defaults, e.defaults.err
}

// readOnce is the result of reading the defaults.
type readOnce struct {
	defaults *jobfile.Defaults
	err      error
}

// checkSets returns an error for overrides that the site forbids.
func checkSets(e *env, sets []string) error {
	if len(sets) == 0 {
		return nil
	}
	d, err := readDefaults(e)
	if err != nil {
		return err
	}
	return d.CheckSets(sets)
}

// refuseSweep returns an error for a sweep in a command that runs one job.
func refuseSweep(job *jobfile.Job, command string) error {
	if job.Sweep == nil {
		return nil
	}
	return &usage.Error{
		Message: fmt.Sprintf("%s runs one job, but [sweep] makes %d from this file", command, job.Sweep.Len()),
		Hint:    "for the file's own values use --set sweep={}; to run all elements here: ddpbatch simulate",
	}
}

// renderScript renders a job's batch script for a run directory. words are the options on sbatch's command line.
func renderScript(job *jobfile.Job, runDir, template string, words []string) (string, error) {
	if template == "" {
		template = templates.Batch
	}
	script := job.BatchScript(runDir)
	script.Words = words
	text, err := script.Render(template)
	if err != nil {
		from := ""
		if job.ScriptTemplate != "" {
			from = " from " + job.ScriptTemplate
		}
		return "", &usage.Error{Message: fmt.Sprintf("render the batch script%s: %v", from, err)}
	}
	return text, nil
}

// blankScript returns a batch script with values blanked that may be secret, and says so.
func blankScript(e *env, script string) string {
	shown := redact.Text(script)
	if shown != script {
		fmt.Fprintf(e.Err, "ddpbatch: %s replaces values whose names contain KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL; "+
			"submit passes the real values to sbatch\n", redact.Blank)
	}
	return shown
}

// readTemplate reads the script template that a job names, and makes sure that it produces a script; "" means ours.
func readTemplate(ctx context.Context, job *jobfile.Job) (string, error) {
	if job.ScriptTemplate == "" {
		return "", nil
	}
	text, err := jobfile.ReadText(ctx, job.ScriptTemplate)
	if ctx.Err() != nil {
		return "", err
	}
	if err != nil {
		return "", usage.Errorf("read the script template: %v", err)
	}
	if len(text) == 0 {
		return "", usage.Errorf("the script template %s is empty", job.ScriptTemplate)
	}
	_, err = renderScript(job, unnamedRun(job), string(text), nil)
	return string(text), err
}

// unnamedRun returns a placeholder for the run directory of a job that is not submitted, because only submit chooses its name.
func unnamedRun(job *jobfile.Job) string {
	return filepath.Join(job.RunDir, job.Name+"-YYYYmmdd-HHMMSS-xxxxxxxx")
}

// withTemplate turns --script-template into the job's key.
func withTemplate(e *env, c *cli.Context, sets []string) []string {
	if c.String(templateFlagName) == "" {
		return sets
	}
	quoted, _ := json.Marshal(e.abs(c.String(templateFlagName))) // JSON's text is also TOML's
	return append(slices.Clip(sets), "script_template="+string(quoted))
}
