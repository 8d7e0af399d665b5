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

// manPage returns the manual page of the program, with the headings of man-pages(7) and COMMANDS. date is the day of the source, or empty.
func manPage(app *cli.App, version, date string) string {
	var p roffPage
	p.WriteString(".\\\" Made by \"ddpbatch man\" from the program's commands and flags.\n")
	// the arguments of .TH are not escaped as text
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
	p.item("-h, --help", "Show help and exit; after a command, its help.")
	p.item("--version", "Print the version and exit.")
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

// manCommand writes what help shows of a command and its subcommands.
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

// sentence turns a phrase into a sentence with a capital letter and a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

var manDescription = []string{
	"ddpbatch takes a data-parallel training job onto a Slurm cluster and through everything that happens there: it " +
		"renders and submits the job, " +
		"starts and supervises every rank on every node, saves checkpoints, and resumes the job where it stopped.",
	"A job is described in a file, job.toml. Flags may precede or follow a command's file. Words after -- are passed on: to " +
		"sbatch (submit, resume), " +
		"or as the command to run (run, simulate, rehearse). For commands on submitted jobs, JOB and RUN are a job id or a run " +
		"directory; " +
		"one element of an array is 123_4. With --json a command prints JSON with stable fields.",
}

// manTerm is one entry in a list of the manual page.
type manTerm struct{ name, text string }

// manVariables are the variables that a user may set, or that a worker gets. A test compares them with the code.
var manVariables = []manTerm{
	{"DDPBATCH_SECRET", "The run's secret, for ranks that are started by hand."},
	{"DDPBATCH_SECRET_FILE", "The key file of runs without Slurm, instead of ~/.config/ddpbatch/key."},
	{"DDPBATCH_TRANSPORT", "auto, shm, tcp or ucx: how ranks send data, instead of mpi.transport."},
	{"DDPBATCH_TCP_STREAMS", "The number of TCP connections for the data of two ranks, 1 to 16."},
	{"DDPBATCH_FLIGHT_FILE", "The file to which a rank writes its last operations when one fails."},
	{"DDPBATCH_DEADLINE", "When the job will be killed, in seconds since 1970 or in the form of RFC 3339. Workers get it, and the " +
		"built-in trainer stops in time."},
	{"DDPBATCH_RUN_DIR", "The run directory. Workers get it."},
	{"DDPBATCH_SOURCE_DIR", "The workdir of the job file, if ranks run in a copy of it ([code]). Workers get it then."},
	{"DDPBATCH_CHECKPOINT_DIR", "The folder for checkpoints. Workers get it."},
	{"DDPBATCH_METRICS_FILE", "The file to which rank 0 may write its progress: " +
		"{\"step\": 10, \"loss\": 0.5}, one object per line. Workers get it."},
	{"DDPBATCH_STOP_FILE", "Once this file exists, workers must save and exit with 75. Workers get it."},
	{"DDPBATCH_HEARTBEAT_FILE",
		"The file that workers must update as a sign of life, and to which they may write their step. " +
			"Workers get it if hangs are detected."},
	{"DDPBATCH_COOKIE", "Identifies the processes that a worker has started. Workers get it."},
	{"DDPBATCH_RANK_PID", "The process of the rank beside which a shell or a command runs. Commands of shell and exec get it."},
	{"DDPBATCH_ROUND", "How often the run's workers were started before. Workers get it."},
	{"DDPBATCH_JOB_NAME, DDPBATCH_JOB_ID, DDPBATCH_CAUSE, DDPBATCH_EXIT, DDPBATCH_MESSAGE, DDPBATCH_STEP",
		"How a run ended. The command launch.on_end gets them."},
	{"DDPBATCH_RUN_ID, DDPBATCH_ATTEMPT, DDPBATCH_STORE", "The run, its attempt, and the address of its store, for the store commands."},
	{"PET_*", "Flags of run, as for torchrun: PET_NNODES for --nnodes."},
	{"PYTHON_EXEC", "The Python with which run starts scripts; by default python3."},
	{"MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE", "As for PyTorch's env://, for train without an agent."},
	{"TMPDIR", "The folder of temporary files."},
	{"NO_COLOR", "Tables have no colors if this is set."},
}

// manFiles are the files that concern a user.
var manFiles = []manTerm{
	{"job.toml", "A job. ddpbatch init writes one to start from."},
	{"runs/", "Run directories, and a link .job-NAME-JOBID for each job; run_dir of a job file, or of the defaults, sets another folder."},
	{"RUN/spec.json, RUN/job.toml, RUN/script.sh, RUN/bin/ddpbatch", "What was submitted, and by which program."},
	{"RUN/slurm-JOBID.log", "The job's output."},
	{"RUN/attempts/N/logs/, RUN/attempts/N/verdict.json", "What ranks wrote in an attempt, and how it ended."},
	{"RUN/checkpoints/", "The checkpoints."},
	{"RUN/metrics.jsonl, RUN/steps.jsonl, RUN/ledger.jsonl",
		"The metrics, the ranks' step times and the job's history, one JSON object per line."},
	{"/etc/ddpbatch.toml", "The site's defaults for all jobs, and the keys that it forbids."},
	{"~/.config/ddpbatch/config.toml", "The user's own defaults, which override the site's, and which the job file overrides. " +
		"XDG_CONFIG_HOME sets another folder for ~/.config."},
	{"~/.config/ddpbatch/templates/", "The user's own starter jobs, NAME.toml each, for ddpbatch init."},
	{"~/.local/state/ddpbatch/runs/", "The user's index of runs, for ddpbatch status --all: a link to each. XDG_STATE_HOME sets another " +
		"folder for ~/.local/state."},
	{"~/.config/ddpbatch/key", "The key of runs without Slurm; created when it is needed."},
}
