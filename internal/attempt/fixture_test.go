package attempt

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/slurm"
)

// pretendSlurm is the Slurm that a batch script calls.
type pretendSlurm struct {
	*fakeslurm.Slurm
	t *testing.T
}

func newPretendSlurm(t *testing.T) *pretendSlurm { return &pretendSlurm{fakeslurm.New(t), t} }

// script is a batch script.
type script struct {
	Out, Err *bytes.Buffer
	Now      func() time.Time
	Environ  []string
}

// env returns the batch script of job 12, and its stdout and stderr.
func (p *pretendSlurm) env(start, attempt int) (e *script, out, errs *bytes.Buffer) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	return &script{Out: out, Err: errs, Now: time.Now, Environ: p.Environ(start, attempt)}, out, errs
}

func (e *script) lookup(name string) (string, bool) { return jobenv.LookupIn(e.Environ)(name) }

func (e *script) env() Env {
	kept, _ := slurm.Scrub(e.Environ)
	return Env{
		Env:    submission.Env{Now: e.Now, Log: e.log(), Slurm: &slurm.Client{Environ: kept}},
		Lookup: e.lookup, Environ: e.Environ, Err: e.Err,
	}
}

func (e *script) log() *slog.Logger {
	if e.Err == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(e.Err, nil))
}

// begin does what `ddpbatch attempt begin` does.
func (e *script) begin(t *testing.T, run *rundir.Dir) error {
	t.Helper()
	environ, over, err := Begin(t.Context(), e.env(), run)
	if over {
		e.Out.WriteString("exit 0\n")
	}
	for _, pair := range environ {
		e.Out.WriteString("export " + pair + "\n")
	}
	return err
}

// end does what `ddpbatch attempt end` does.
func (e *script) end(t *testing.T, run *rundir.Dir, end SrunEnd) error {
	t.Helper()
	return End(t.Context(), e.env(), run, end)
}

// exitCode returns the exit code of the command.
func exitCode(err error) int {
	var coded *exit.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.Code
	case errors.Is(err, rundir.ErrSuperseded):
		return exit.Never
	}
	return exit.Failed
}

// begun returns a run whose first attempt began and ended with v, and its batch script.
func (p *pretendSlurm) begun(requeue string, v rundir.Verdict) (*rundir.Dir, *script) {
	p.t.Helper()
	run := fakeslurm.Run(p.t, requeue)
	e, _, _ := p.env(0, 1)
	err := e.begin(p.t, run)
	v.Attempt, v.JobID, v.Time = 1, "12", e.Now()
	if err := errors.Join(err, run.WriteVerdict(v), run.Append(v.Event())); err != nil {
		p.t.Fatal(err)
	}
	return run, e
}

// Verdicts of workers that were asked to stop, and of a run that is done.
var (
	stoppedAndSaved = rundir.Verdict{Cause: "cancelled", Exit: 75, Saved: true, Message: "told to stop by SIGTERM"}
	doneVerdict     = rundir.Verdict{Cause: "done", FirstRank: -1, Message: "done"}
)
