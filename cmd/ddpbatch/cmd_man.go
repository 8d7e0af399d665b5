package main

import (
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/exit"
)

func newManCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "print the manual page",
		Description: example("ddpbatch man | man -l -", "ddpbatch man >~/.local/share/man/man1/ddpbatch.1"),
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 0, 0); err != nil {
				return err
			}
			_, err := io.WriteString(e.Out, manPage(newApp(e), version, ownBuild().date()))
			return err
		},
	}
}

// manPage is the manual page of the program, with the headings of man-pages(7) and COMMANDS. date is the day of the source, or empty.
func manPage(app *cli.App, version, date string) string {
	var p roffPage
	p.WriteString(".\\\" Made by \"ddpbatch man\" from the program's commands and flags.\n")
	// its words are no text
	p.WriteString(".TH " + strings.ToUpper(app.Name) + ` 1 "` + date + `" "` + app.Name + " " + version + `" "User Commands"` + "\n")
	p.request("SH", "NAME")
	p.prose(app.Name + " - " + app.Usage)
	p.request("SH", "SYNOPSIS")
	p.request("SY", app.Name)
	p.prose("COMMAND [OPTIONS] [ARGUMENTS]")
	p.request("YS")
	p.request("SH", "DESCRIPTION")
	for i, text := range manDescription {
		if i == 0 {
			p.prose(text)
		} else {
			p.paragraph(text)
		}
	}
	p.request("SH", "OPTIONS")
	p.item("-h, --help", "Show help and end; behind a command, its help.")
	p.item("--version", "Print the version, and end.")
	p.request("SH", "COMMANDS")
	for _, command := range app.Commands {
		manCommand(&p, app.Name, command)
	}
	p.request("SH", "EXIT STATUS")
	for _, meaning := range exit.Meanings() {
		p.item(meaning.Code, sentence(meaning.Text))
	}
	p.request("SH", "ENVIRONMENT")
	for _, v := range manVariables {
		p.item(v.name, v.text)
	}
	p.request("SH", "FILES")
	for _, f := range manFiles {
		p.item(f.name, f.text)
	}
	p.request("SH", "EXAMPLES")
	p.lines(app.Description)
	p.request("SH", "SEE ALSO")
	p.request("BR", "sbatch", "(1),")
	p.request("BR", "srun", "(1),")
	p.request("BR", "squeue", "(1),")
	p.request("BR", "scancel", "(1)")
	return p.String()
}

// manCommand writes what help shows of a command and of those below it.
func manCommand(p *roffPage, before string, c *cli.Command) {
	if c.Hidden {
		return
	}
	name := before + " " + c.Name
	if len(c.Subcommands) > 0 {
		for _, sub := range c.Subcommands {
			manCommand(p, name, sub)
		}
		return
	}
	p.request("SS", strings.TrimSpace(name+" "+c.ArgsUsage))
	p.prose(sentence(c.Usage))
	for _, f := range c.Flags {
		if shown, ok := f.(cli.VisibleFlag); ok && !shown.IsVisible() {
			continue
		}
		names, text, _ := strings.Cut(f.String(), "\t")
		p.item(strings.TrimSpace(names), strings.TrimSpace(text))
	}
	if c.Description != "" {
		p.request("PP")
		p.lines(c.Description)
	}
}

// sentence is a phrase with a capital and a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

var manDescription = []string{
	"ddpbatch takes a data-parallel training job onto a Slurm cluster and through everything that happens there: it " +
		"renders and submits the job, " +
		"starts and supervises every rank on every node, saves checkpoints, and goes on where it stopped.",
	"A job is described in a file, job.toml. Flags may stand before or behind a command's file. Words behind -- are handed on: to " +
		"sbatch (submit, resume), " +
		"or as the command to run (run, simulate, rehearse). JOB, of a command that takes one that was submitted, is a job id or a run " +
		"directory, and so is RUN; " +
		"one element of an array is 123_4. With --json a command prints JSON with stable fields.",
}

// manTerm is one entry of a list of the manual page.
type manTerm struct{ name, text string }

// manVariables are the variables that a person may set, or finds in a worker. A test holds them against the code.
var manVariables = []manTerm{
	{"DDPBATCH_SECRET", "The run's secret, where ranks are started by hand."},
	{"DDPBATCH_SECRET_FILE", "The key file of runs that Slurm does not start, in the place of ~/.config/ddpbatch/key."},
	{"DDPBATCH_TRANSPORT", "auto, shm, tcp or ucx: how ranks send data, in the place of mpi.transport."},
	{"DDPBATCH_TCP_STREAMS", "Over how many TCP connections the data of two ranks goes, 1 to 16."},
	{"DDPBATCH_FLIGHT_FILE", "Where a rank writes its last operations when one fails."},
	{"DDPBATCH_DEADLINE", "When the job will be killed, in seconds since 1970 or in the form of RFC 3339. Workers find it, and the " +
		"built-in trainer stops in time."},
	{"DDPBATCH_RUN_DIR", "The run directory. Workers find it."},
	{"DDPBATCH_SOURCE_DIR", "The workdir of the job file, where ranks run in a copy of it ([code]). Workers find it then."},
	{"DDPBATCH_CHECKPOINT_DIR", "The folder for checkpoints. Workers find it."},
	{"DDPBATCH_METRICS_FILE", "Where rank 0 may say how far it is: {\"step\": 10, \"loss\": 0.5}, an object a line. Workers find it."},
	{"DDPBATCH_STOP_FILE", "Once this file is there, workers are to save and to exit with 75. Workers find it."},
	{"DDPBATCH_HEARTBEAT_FILE",
		"Where workers are to leave a sign of life, and may write their step. Workers find it where hangs are looked for."},
	{"DDPBATCH_COOKIE", "By this the agent finds what a worker has started. Workers find it."},
	{"DDPBATCH_RANK_PID", "The process of the rank that a shell or a command runs beside. What shell and exec start finds it."},
	{"DDPBATCH_ROUND", "How often the run's workers were started before. Workers find it."},
	{"DDPBATCH_JOB_NAME, DDPBATCH_JOB_ID, DDPBATCH_CAUSE, DDPBATCH_EXIT, DDPBATCH_MESSAGE, DDPBATCH_STEP",
		"How a run ended. The command launch.on_end finds them."},
	{"DDPBATCH_RUN_ID, DDPBATCH_ATTEMPT, DDPBATCH_STORE", "The run, its attempt, and where its store is, for the store commands."},
	{"PET_*", "Flags of run, as torchrun has them: PET_NNODES for --nnodes."},
	{"PYTHON_EXEC", "The Python by which run starts scripts; python3 where it is not set."},
	{"MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE", "As PyTorch's env:// has them, for train where no agent starts it."},
	{"TMPDIR", "The folder of temporary files."},
	{"NO_COLOR", "Tables have no colours where this is set."},
}

// manFiles are the files that a person has to do with.
var manFiles = []manTerm{
	{"job.toml", "A job. ddpbatch init writes one to start from."},
	{"runs/", "Run directories, and a link .job-NAME-JOBID for each job; run_dir of a job file, or of the defaults, sets another folder."},
	{"RUN/spec.json, RUN/job.toml, RUN/script.sh, RUN/bin/ddpbatch", "What was submitted, and by which program."},
	{"RUN/slurm-JOBID.log", "The job's output."},
	{"RUN/attempts/N/logs/, RUN/attempts/N/verdict.json", "What ranks wrote in an attempt, and how it ended."},
	{"RUN/checkpoints/", "The checkpoints."},
	{"RUN/metrics.jsonl, RUN/steps.jsonl, RUN/ledger.jsonl",
		"What training, the ranks' step times and the job's history had to say, a JSON object a line."},
	{"/etc/ddpbatch.toml", "The site's defaults for all jobs, and the keys that it forbids."},
	{"~/.config/ddpbatch/config.toml", "The user's own defaults, over the site's and below the job file. " +
		"XDG_CONFIG_HOME sets another folder for ~/.config."},
	{"~/.config/ddpbatch/templates/", "The user's own starter jobs, NAME.toml each, for ddpbatch init."},
	{"~/.local/state/ddpbatch/runs/", "The user's index of runs, for ddpbatch status --all: a link to each. XDG_STATE_HOME sets another " +
		"folder for ~/.local/state."},
	{"~/.config/ddpbatch/key", "The key of runs that Slurm does not start; made when it is needed."},
}
