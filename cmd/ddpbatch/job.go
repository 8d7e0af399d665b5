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

// newRun makes the run directory of a job: the job file as it was read, the
// resolved spec, a copy of this program, and one of the code, unless code is nil.
func newRun(
	ctx context.Context, e *env, kind string, job *jobfile.Job, source string, text []byte, sets []string, code *codeCopy,
) (*rundir.Dir, error) {
	spec, err := job.Spec(rundir.Spec{Kind: kind, Version: version, Source: source, Sets: sets})
	if err != nil {
		return nil, err
	}
	binary, err := e.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	run, err := rundir.Create(rundir.CreateConfig{
		Parent: job.RunDir, Spec: spec, JobFile: text, Binary: binary, Now: e.Now(), Code: code.writer(ctx),
	})
	if err == nil {
		warnExposed(e, run)
	}
	return run, err
}

// checkOwn makes sure that a run that is to be acted on is the caller's.
func checkOwn(e *env, run *rundir.Dir) error {
	err := run.CheckOwn()
	if err == nil {
		warnExposed(e, run)
	}
	return err
}

// warnExposed says where the path to a run can be changed by others. Projects are shared so, and it is not for this command to end that.
func warnExposed(e *env, run *rundir.Dir) {
	if path := run.ExposedAbove(); path != "" {
		e.log().Warn("other users can change this folder, and put a run of theirs in the place of this one; "+
			"set run_dir to a place below a folder of your own", "folder", path)
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

// loadJob reads a job file for a command that will act on it; warnings are printed, with what remarks find.
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

// parseJob reads a job over the defaults of the site and the user. What remarks find is among the warnings.
func parseJob(e *env, path string, text []byte, sets []string, remarks ...func(*jobfile.Job) []jobfile.Remark) (
	*jobfile.Job, []jobfile.Fault, error,
) {
	d, err := e.withClusters(readDefaults(e))
	if err != nil {
		return nil, nil, err
	}
	return d.ParseWith(filepath.Base(path), filepath.Dir(path), text, sets, remarks...)
}

const clustersVariable = "SLURM_CLUSTERS"

// withClusters lays SLURM_CLUSTERS over the defaults, as slurm.clusters, for a job that is to be submitted: the run keeps it, so that later
// commands look for its jobs where they were sent, whatever the shell says then. err is passed on.
func (e *env) withClusters(d *jobfile.Defaults, err error) (*jobfile.Defaults, error) {
	clusters := e.get(clustersVariable)
	if err != nil || clusters == "" {
		return d, err
	}
	if !slurm.AreClusters(clusters) {
		return nil, usage.Errorf("%s is %q: name one cluster or several, with commas between (\"a,b\"), there or in "+
			"slurm.clusters, or unset it",
			clustersVariable, clusters)
	}
	return jobfile.ParseDefaults(append(d.Files(), rundir.DefaultsFile{Name: clustersVariable, Text: fmt.Sprintf("slurm.clusters = %q\n",
		clusters)})...)
}

// fileRemarks finds what a job names and this machine does not see.
func (e *env) fileRemarks() func(*jobfile.Job) []jobfile.Remark {
	searchPath, _ := e.lookup("PATH")
	return jobfile.FileRemarks(searchPath)
}

// askPatience is how long Slurm may take to tell the limits of a partition.
const askPatience = 5 * time.Second

// limitRemarks asks Slurm for the limits of the partitions that a job goes to, and finds what is beyond them. words are further options of
// sbatch. Where Slurm does not answer nothing is found, and *failed says why.
func (e *env) limitRemarks(ctx context.Context, words []string, failed *error) func(*jobfile.Job) []jobfile.Remark {
	return func(job *jobfile.Job) (all []jobfile.Remark) {
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		clusters := job.Clusters()
		if strings.Contains(clusters, ",") {
			*failed = fmt.Errorf("slurm.clusters = %q names several clusters, each with limits of its own", clusters)
			return nil
		}
		client := e.submitEnv().Slurm.On(clusters)
		names, said := job.Partitions(words)
		for i, name := range names {
			if !said[i] {
				continue // another one, or the first of several that has room
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

// defaultsPlaces are where the site's and the user's own files are.
func (e *env) defaultsPlaces() defaults.Places {
	return defaults.Places{Site: e.SiteFile, User: defaults.UserFolder(e.lookup)}
}

// parsePretend reads a job that is to be simulated. Some of its overrides are of simulate's flags, or rehearse's own, which say nothing to
// the site; those that a person has written are checked by jobSource.
func parsePretend(e *env, source jobText) (*jobfile.Job, []jobfile.Fault, error) {
	d, err := readDefaults(e)
	if err != nil {
		return nil, nil, err
	}
	return d.FreeSets().Parse(filepath.Base(source.path), filepath.Dir(source.path), source.text, source.sets)
}

// readDefaults reads the defaults of the site and the user, once.
func readDefaults(e *env) (*jobfile.Defaults, error) {
	if e.defaults == nil {
		places := e.defaultsPlaces()
		d, err := places.Read()
		if above := places.Exposed(); above != "" && err == nil {
			e.log().Warn("other users can change this folder, and so what your jobs begin with; to end that: chmod go-w", "folder", above)
		}
		if err != nil && !errors.Is(err, vfs.ErrExposed) && !errors.As(err, new(jobfile.Faults)) {
			err = &usage.Error{Message: err.Error()}
		}
		e.defaults = &readOnce{d, err}
	}
	return e.defaults.defaults, e.defaults.err
}

// readOnce is what the reading of the defaults gave.
type readOnce struct {
	defaults *jobfile.Defaults
	err      error
}

// checkSets refuses overrides that the site forbids.
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

// refuseSweep refuses a sweep for a command that runs one job.
func refuseSweep(job *jobfile.Job, command string) error {
	if job.Sweep == nil {
		return nil
	}
	return &usage.Error{
		Message: fmt.Sprintf("%s runs one job, and [sweep] makes %d of this file", command, job.Sweep.Len()),
		Hint:    "to run the file's own values: --set sweep={}; to run all elements here: ddpbatch simulate",
	}
}

// renderScript renders a job's batch script for a run directory. words are the options that sbatch gets on its command line.
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

// blankScript is a batch script with the values blanked that may be secret, which is said.
func blankScript(e *env, script string) string {
	shown := redact.Text(script)
	if shown != script {
		fmt.Fprintf(e.Err, "ddpbatch: %s stands for values whose names hold KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL; "+
			"what submit hands to sbatch has them\n", redact.Blank)
	}
	return shown
}

// readTemplate reads the script template that a job names, and makes sure that it makes a script; "" is ours.
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

// unnamedRun stands for the run directory of a job that is not submitted: submit makes it, and knows its real name.
func unnamedRun(job *jobfile.Job) string {
	return filepath.Join(job.RunDir, job.Name+"-YYYYmmdd-HHMMSS-xxxxxxxx")
}

// withTemplate turns --script-template into the job's key.
func withTemplate(e *env, c *cli.Context, sets []string) []string {
	if c.String(templateFlagName) == "" {
		return sets
	}
	quoted, _ := json.Marshal(e.abs(c.String(templateFlagName))) // JSON's text is TOML's, too
	return append(slices.Clip(sets), "script_template="+string(quoted))
}
