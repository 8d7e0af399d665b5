package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/text"
)

// Data is the content of a report. Its JSON names are a contract (docs/cli/report.md).
type Data struct {
	Made    time.Time         `json:"made"`
	Version string            `json:"version"` // of the ddpbatch that made the report
	Status  runview.RunStatus `json:"status"`
	Run     Origin            `json:"run"`

	Attempts    []Attempt            `json:"attempts"` // the newest, oldest first
	Metrics     Metrics              `json:"metrics"`
	Steps       *StepTimes           `json:"step_times"` // nil if none were recorded
	Checkpoints []Checkpoint         `json:"checkpoints"`
	Foreign     []checkpoint.Foreign `json:"foreign_saves"` // what the program itself has saved, newest first
	Goodput     *goodput.Breakdown   `json:"goodput"`
	Settings    Settings             `json:"settings"`
	Elements    *Elements            `json:"elements"` // of an array or sweep, and otherwise nil
	Ledger      []rundir.Event       `json:"ledger"`   // the newest, oldest first
	Earlier     Earlier              `json:"left_out"`
	Faults      []string             `json:"warnings"` // what could not be read, and why

	known bool // Status comes from the viewer
}

// Origin describes where a run comes from.
type Origin struct {
	Name    string    `json:"name"` // of the run directory
	Kind    string    `json:"kind"` // as in its spec
	Created time.Time `json:"created"`
	Version string    `json:"version"` // of the ddpbatch that made the run
	Nodes   int       `json:"nodes"`
	Ranks   int       `json:"ranks"`   // from the newest checkpoint or step times; 0 if not known
	Summary string    `json:"summary"` // what the job does, in one line
	Source  string    `json:"source"`
	WorkDir string    `json:"workdir"`
}

// Earlier counts what exists but is left out of the report.
type Earlier struct {
	Attempts    int `json:"attempts"`
	Checkpoints int `json:"checkpoints"`
	Foreign     int `json:"foreign_saves"`
	Events      int `json:"events"`
	Elements    int `json:"elements"` // elements whose curves are not drawn
}

const (
	maxAttempts    = 200
	maxCheckpoints = 100
	maxEvents      = 300
	maxMessage     = 2000 // bytes of the text of one event or verdict
)

// Request says what a report is made from.
type Request struct {
	Viewer  *runview.Viewer
	Version string
	Log     *slog.Logger
}

// Of reads a run, or an element of an array. It asks Slurm once for the run's state. What cannot be read is left out and noted in Faults.
// An error is returned only if ctx ends.
func (r Request) Of(ctx context.Context, run *rundir.Dir) (*Data, error) {
	d := &Data{Made: r.Viewer.Now(), Version: r.Version, Faults: []string{}}
	d.readStatus(ctx, r.Viewer, run)
	d.readOrigin(run)
	events, err := run.Ledger()
	d.fault(err)
	d.readAttempts(run, events)
	saves := d.readMetrics(ctx, run)
	d.readCheckpoints(ctx, r.Log, run, saves)
	d.readSteps(run)
	d.readGoodput(run)
	d.readSettings(run)
	d.readElements(ctx, run)
	d.addRanks()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return d, nil
}

// fault notes what could not be read.
func (d *Data) fault(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Faults = append(d.Faults, shown(err.Error()))
	}
}

// readStatus also asks Slurm. If that fails, the status comes from the run's files.
func (d *Data) readStatus(ctx context.Context, viewer *runview.Viewer, run *rundir.Dir) {
	rows, err := viewer.Statuses(ctx, []*rundir.Dir{run})
	if err == nil {
		d.Status = rows[0]
		err = rows[0].Failed
	}
	if d.known = err == nil; d.known {
		return
	}
	d.fault(err)
	d.Status = runview.RunStatus{Job: d.Status.Job, Name: run.Spec().Name, State: "UNKNOWN", RunDir: run.Path()}
	d.Status.Attempt, _ = run.NewestAttempt()
	if m, ok, err := run.LastMetrics(); ok && err == nil {
		d.Status.Epoch, d.Status.Step, d.Status.Loss = m.Epoch, &m.Step, m.Loss
		if m.Steps > 0 {
			d.Status.Steps = &m.Steps
		}
	}
}

// readMetrics reads the metrics. It returns what they say about checkpoints, by step.
func (d *Data) readMetrics(ctx context.Context, run *rundir.Dir) map[int64]save {
	c, err := collectRun(ctx, run, maxRead, nil)
	d.fault(err)
	d.Metrics = c.metrics
	d.addSteps()
	return c.saves
}

// collectRun reads at most most bytes of a run's metrics file.
func collectRun(ctx context.Context, run *rundir.Dir, most int64, only func(name string) bool) (*collector, error) {
	none := source{most: most}
	f, err := run.ReadMetrics()
	if err != nil {
		c, _ := collect(ctx, none, only)
		return c, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		c, _ := collect(ctx, none, only)
		return c, fmt.Errorf("read the run's metrics: %w", err)
	}
	c, err := collect(ctx, source{f, info.Size(), most}, only)
	if err != nil {
		err = fmt.Errorf("read the run's metrics: %w", err)
	}
	return c, err
}

// Checkpoint is a checkpoint on disk.
type Checkpoint struct {
	checkpoint.Info
	Seconds *float64 `json:"save_s"`       // from when it was due until it was durable; nil if the metrics do not say, as for Stall
	Stall   *float64 `json:"save_stall_s"` // how long training stopped for it
}

func (d *Data) readCheckpoints(ctx context.Context, log *slog.Logger, run *rundir.Dir, saves map[int64]save) {
	d.Checkpoints, d.Foreign = []Checkpoint{}, []checkpoint.Foreign{}
	dir, err := checkpoint.Open(run.CheckpointsPath(), checkpoint.Options{Log: log})
	if err != nil {
		d.fault(err)
		return
	}
	list, err := dir.List(ctx)
	d.fault(err)
	d.Earlier.Checkpoints = max(0, len(list)-maxCheckpoints)
	for _, info := range list[d.Earlier.Checkpoints:] {
		c := Checkpoint{Info: info}
		if of, ok := saves[info.Step]; ok && info.Committed {
			c.Seconds = &of.seconds
			if of.stall >= 0 {
				c.Stall = &of.stall
			}
		}
		d.Checkpoints = append(d.Checkpoints, c)
	}
	if err != nil || len(list) > 0 {
		return
	}
	foreign, err := checkpoint.ListForeign(run.CheckpointsPath())
	d.fault(err)
	d.Earlier.Foreign = max(0, len(foreign)-maxCheckpoints)
	d.Foreign = append(d.Foreign, foreign[:min(maxCheckpoints, len(foreign))]...)
}

// readGoodput accounts for the run's time, up to when it was last seen if it has ended or may have.
func (d *Data) readGoodput(run *rundir.Dir) {
	b, err := new(goodput.Accounts).Of(run, d.Status.Ended || !d.known, d.Made)
	d.fault(err)
	if err == nil && b.Total() > 0 {
		d.Goodput = &b
	}
}

// addRanks sets the number of ranks, from the newest source that has it.
func (d *Data) addRanks() {
	if d.Steps != nil {
		d.Run.Ranks = d.Steps.Ranks
	}
	for _, c := range d.Checkpoints {
		if c.World > 0 {
			d.Run.Ranks = cmp.Or(d.Run.Ranks, c.World)
		}
	}
}

// shown prepares text from a file for display.
func shown(s string) string { return text.Clean(text.Cut(s, maxMessage)) }
