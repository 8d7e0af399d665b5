package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/container"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

const templateFlagName = "script-template"

func templateFlag() cli.Flag {
	return &cli.StringFlag{Name: templateFlagName, Usage: "render this `FILE` instead of the built-in batch script"}
}

func newRenderCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "render",
		Usage:       "print the sbatch script of a job without submitting or writing anything",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch render job.toml --set slurm.nodes=4"),
		Flags:       []cli.Flag{setFlag(), templateFlag(), jsonFlag()},
		Action: withArg("job file", func(c *cli.Context, path string) error {
			return e.replying(c.Bool("json"), func(e *env) error {
				return runRender(c.Context, e, e.abs(path), withTemplate(e, c, c.StringSlice("set")))
			})
		}),
	}
}

func runRender(ctx context.Context, e *env, path string, sets []string) error {
	job, _, err := loadJob(ctx, e, path, sets)
	if err != nil {
		return err
	}
	_, warnings, err := selectCode(ctx, e, job, path)
	warn(e, warnings)
	if err != nil {
		return err
	}
	template, err := readTemplate(ctx, job)
	if err != nil {
		return err
	}
	script, err := renderScript(job, unnamedRun(job), template, nil)
	if err != nil {
		return err
	}
	comment, err := containerComment(e, job)
	if err != nil {
		return err
	}
	shown := blankScript(e, script+comment)
	if e.reply == nil {
		_, err := io.WriteString(e.Out, shown)
		return err
	}
	return printJSON(e, scriptReply{jobReply: unsubmittedReply(e, job, sets, nil), Script: shown})
}

// containerComment returns, as a comment, the command with which the agent will start a rank in its container; "" if the job has no
// container. What the agent learns from its node is left out: limits, cores, GPUs of "auto", variables, and folders of its own.
func containerComment(e *env, job *jobfile.Job) (string, error) {
	if job.Container.Runtime == "" {
		return "", nil
	}
	run := unnamedRun(job)
	w := container.Worker{
		Argv: job.Launch.Command, Dir: job.RanksDir(run), Name: container.Name(filepath.Base(run), "NODE", 0),
		GPUs: job.Container.GPUs, User: e.get("USER"), UID: os.Getuid(), GID: os.Getgid(), ImageEnv: job.Container.HasEnvironment(),
	}
	if job.Builtin() {
		w.Argv = []string{filepath.Join(run, "bin", "ddpbatch"), "train"}
	}
	w.Binds, _ = containerBinds(e, job, run)
	argv, _, err := job.Container.Command(w)
	if err != nil {
		return "", usage.Errorf("container: %v", err)
	}
	command := strings.ReplaceAll(text.CleanLines(slurm.ShellJoin(redact.Words(argv))), "\n", "\n#   ")
	return "\n# On each node the agent starts a rank with this command. It adds what it finds there: limits, GPUs and variables.\n#   " +
		command + "\n", nil
}

// unsubmittedReply returns the reply for a job that is not submitted.
func unsubmittedReply(e *env, job *jobfile.Job, sets, words []string) jobReply {
	return jobReply{[]string{}, job.Name, unnamedRun(job), requestOf(job, sets, words), e.reply.warnings(), ""}
}
