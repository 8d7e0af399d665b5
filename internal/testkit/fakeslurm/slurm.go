package fakeslurm

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
)

// Slurm is a directory of commands that replace Slurm's. Each command records its call, and prints the file of its name with .out. If the
// file with .err exists, it prints that to standard error and fails. If squeue is asked for a user's jobs, the files are squeue-user.out
// and squeue.err.
type Slurm struct {
	Dir string
	t   testing.TB
}

// New creates the commands.
func New(t testing.TB) *Slurm {
	t.Helper()
	p := &Slurm{t: t, Dir: t.TempDir()}
	for _, name := range []string{"scontrol", "sinfo", "sbatch", "scancel", "squeue"} {
		script := fmt.Sprintf(`#!/bin/sh
echo "%[1]s $*" >>"%[2]s/calls"
key=%[1]s
[ "$1" = requeue ] && key=requeue
[ "$1" = update ] && key=update
[ -e "%[2]s/$key.err" ] && cat "%[2]s/$key.err" >&2 && exit 1
case "$key $*" in "squeue "*--me*|"squeue "*--users=*) key=squeue-user ;; esac
[ -e "%[2]s/$key.out" ] && cat "%[2]s/$key.out"
exit 0
`, name, p.Dir)
		p.write(name, script)
	}
	return p
}

// Says makes a command, or "requeue" or "update" of scontrol, print text. With "err" the command fails.
func (p *Slurm) Says(name, text string) {
	p.t.Helper()
	p.write(name, text)
}

// Must ends the test if err is not nil.
func (p *Slurm) Must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// WithoutAccounting makes sacct report that the site keeps no record of jobs.
func (p *Slurm) WithoutAccounting() {
	p.t.Helper()
	p.Says("sacct", "#!/bin/sh\necho Slurm accounting storage is disabled >&2\nexit 1\n")
}

// QueueOf sets what squeue prints about the jobs of a run: "12_1 RUNNING", or with a reason, "12 FAILED NonZeroExitCode", followed by a
// name that is not the run's. For a user's jobs it prints that each runs the run's script.
func (p *Slurm) QueueOf(run *rundir.Dir, jobs ...string) {
	p.t.Helper()
	var plain, user strings.Builder
	for _, job := range jobs {
		words := append(strings.Fields(job), "", "")
		fields := []string{
			words[0], "1", words[1], cmp.Or(words[2], "None"), "N/A", "1:00", cmp.Or(words[3], run.Spec().Name),
		}
		line := strings.Join(fields, "\x1f") + "\n"
		plain.WriteString(line)
		user.WriteString(run.ScriptPath() + "\x1f" + line)
	}
	p.Says("squeue.out", plain.String())
	p.Says("squeue-user.out", user.String())
}

// First puts shell lines before what a command does itself.
func (p *Slurm) First(name, lines string) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.Dir, name))
	p.Must(err)
	p.write(name, "#!/bin/sh\n"+lines+"\n"+string(text))
}

func (p *Slurm) write(name, text string) {
	p.t.Helper()
	p.Must(os.WriteFile(filepath.Join(p.Dir, name), []byte(text), 0o700))
}

// Calls returns the commands that changed something, or asked whether they could.
func (p *Slurm) Calls() (calls []string) {
	text, _ := os.ReadFile(filepath.Join(p.Dir, "calls"))
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "scontrol show") && !strings.HasPrefix(line, "sinfo") {
			calls = append(calls, strings.TrimSpace(line))
		}
	}
	return calls
}

// Impatient sets a KillWait with which a script that got TERM waits a third of a second for an answer. It is for tests in which no answer
// comes.
const Impatient = "DDPBATCH_KILL_WAIT=1s"

// Environ returns the environment of the batch script of job 12, in restart number start.
func (p *Slurm) Environ(start, attempt int) []string {
	return []string{
		"PATH=" + p.Dir + ":/usr/bin:/bin", "SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-3]",
		fmt.Sprintf("SLURM_RESTART_COUNT=%d", start), fmt.Sprintf("DDPBATCH_ATTEMPT=%d", attempt), "DDPBATCH_KILL_WAIT=3m",
	}
}

// Run creates the run directory of a job with the given [requeue] table.
func Run(t testing.TB, requeue string) *rundir.Dir {
	t.Helper()
	return RunOf(t, "slurm", "/bin/true", requeue)
}

// RunOf is Run for a run of the given kind, whose copy of ddpbatch is the given program.
func RunOf(t testing.TB, kind, program, requeue string) *rundir.Dir {
	t.Helper()
	dir := t.TempDir()
	text := []byte("name = \"x\"\nlaunch.command = [\"true\"]\n[requeue]\n" + requeue)
	job, _, err := jobfile.Parse("job.toml", dir, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := job.Spec(rundir.Spec{Kind: kind, Source: filepath.Join(dir, "job.toml")})
	if err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Create(rundir.CreateConfig{Parent: dir, Spec: spec, JobFile: text, Binary: program, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// Events returns the names of the events in a run's ledger.
func Events(t testing.TB, run *rundir.Dir) (events []string) {
	t.Helper()
	history, err := run.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range history {
		events = append(events, event.Event)
	}
	return events
}

// Facts is what scontrol prints about job 12: its state, its number of restarts, and the nodes that it excludes.
const Facts = "JobId=12 JobName=x UserId=root(0) JobState=%s Dependency=(null) Requeue=1 Restarts=%d BatchFlag=1 TimeLimit=01:00:00 " +
	"EndTime=2099-01-01T00:00:00 ExcNodeList=%s NodeList=n[1-3] NumNodes=3\n"

// The output for a job that runs, that Slurm has requeued, and that ends.
var (
	RunningFacts  = fmt.Sprintf(Facts, "RUNNING Reason=None", 0, "(null)")
	RequeuedFacts = fmt.Sprintf(Facts, "COMPLETING Reason=None", 1, "(null)")
	EndingFacts   = fmt.Sprintf(Facts, "COMPLETING Reason=None", 0, "(null)")
)

// Silence is what Slurm's commands print if no controller answers.
const Silence = "Unable to contact slurm controller (connect failure)"

// Verdicts of workers that saved, and of a node that was lost.
var (
	Saved = rundir.Verdict{Cause: "stopped", Exit: 75, Saved: true, Message: "saved"}
	Lost  = rundir.Verdict{Cause: "node", Exit: 1, Host: "n2", Nodes: []string{"n2"}, Message: "lost"}
)
