package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/text"
)

// judge prints how the two runs went and whether they ended alike.
func (r *rehearsal) judge(ctx context.Context, straight, disturbed performance) error {
	if r.steps > 0 && straight.steps >= r.steps {
		fmt.Fprintf(r.e.Out, "both runs end at step %d, where the job itself may have more (--steps)\n", r.steps)
	}
	t := newTable(r.e, "RUN", "ATTEMPTS", "STEP", "TIME", "END")
	for _, p := range []performance{straight, disturbed} {
		step := "-"
		if p.verdict.Step > 0 {
			step = strconv.FormatInt(p.verdict.Step, 10)
		}
		t.Row(p.name, strconv.Itoa(p.attempts), step, p.took.Round(time.Millisecond).String(), p.verdict.Message)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if disturbed.verdict.Exit != 0 {
		return r.verdict(exitFailed, "different: the interrupted run did not come to its end; its run directory is kept: %s", disturbed.run.Path())
	}
	found, err := r.compare(ctx, straight, disturbed)
	switch {
	case err != nil:
		return err
	case disturbed.ignored():
		return r.verdict(exitPartly, "not known: the command ignored the warning: it ran on for %v, to its end; on %s, or once there is a file DDPBATCH_STOP_FILE, it is to save and exit with %d (%s)",
			disturbed.deaf.Round(time.Millisecond), disturbed.job.Launch.WarnSignal, exitRequeue, found.what)
	case len(found.differ) > 0:
		for _, line := range found.differ {
			fmt.Fprintln(r.e.Out, line)
		}
		return r.verdict(exitFailed, "different: %s", found.what)
	case found.compared == 0:
		return r.verdict(exitPartly, "not known: both runs end with code 0, but there is nothing to compare: %s", found.what)
	case disturbed.attempts < 2:
		return r.verdict(exitPartly, "not known: %s, but nothing interrupted the run before its end; take a longer job, or an earlier fault", found.what)
	}
	return r.verdict(exitDone, "same: %s", found.what)
}

// verdict prints a rehearsal's last line, and is its exit code.
func (r *rehearsal) verdict(code int, format string, args ...any) error {
	fmt.Fprintf(r.e.Out, format+"\n", args...)
	if code == exitDone {
		return nil
	}
	return &exit.Error{Code: code}
}

// finding is what a comparison found.
type finding struct {
	compared int
	differ   []string // a line each
	what     string   // was compared, and how that went
}

// compare holds the ends of two runs against each other: their newest checkpoints, or the files that the user names.
func (r *rehearsal) compare(ctx context.Context, a, b performance) (finding, error) {
	if !a.job.Builtin() || len(r.patterns) > 0 {
		return compareFiles(a.run, b.run, r.patterns)
	}
	x, err := newestSide(ctx, r.e, a)
	if err != nil {
		return finding{}, err
	}
	if x == nil {
		return finding{what: "the job saves no checkpoints (checkpoint.every_steps, or its end)"}, nil
	}
	defer x.Close()
	y, err := newestSide(ctx, r.e, b)
	if err != nil {
		return finding{}, err
	}
	if y == nil {
		return finding{compared: 1, differ: []string{"the interrupted run has no checkpoint"}, what: "only one run has a checkpoint"}, nil
	}
	defer y.Close()
	d, err := inspect.Compare(ctx, x, y, inspect.Tolerance{})
	if err != nil {
		return finding{}, err
	}
	if d.Same {
		return finding{compared: d.Equal, what: fmt.Sprintf("the last checkpoints are equal bit for bit, %s and %s", plural(d.Equal, "tensor"), plural(x.Values(), "value"))}, nil
	}
	f := finding{compared: d.Equal + len(d.Tensors), what: fmt.Sprintf("%d tensors and %d values of the last checkpoints are not the same", len(d.Tensors)+len(d.OnlyA)+len(d.OnlyB), len(d.Values))}
	for _, tensor := range d.Tensors {
		f.differ = append(f.differ, fmt.Sprintf("tensor %s (%s): %d of %d elements differ, by %s at most", text.Clean(tensor.Name), tensor.Is(), tensor.Differ, tensor.Elements, number(tensor.MaxAbs)))
	}
	for _, name := range append(d.OnlyA, d.OnlyB...) {
		f.differ = append(f.differ, "tensor "+text.Clean(name)+" is in one of them only")
	}
	for _, v := range d.Values {
		f.differ = append(f.differ, fmt.Sprintf("value %s: %s and %s", text.Clean(v.Name), valueText(v.A), valueText(v.B)))
	}
	first, _, _ := strings.Cut(f.differ[0], ":")
	f.what += "; the first is " + first
	return f, nil
}

// newestSide is the newest checkpoint of a run; nil where it has none.
func newestSide(ctx context.Context, e *env, p performance) (*inspect.Contents, error) {
	dir, err := checkpoint.Open(p.run.CheckpointsPath(), checkpoint.Options{Log: e.log()})
	if err != nil {
		return nil, err
	}
	found, err := dir.FindLatest(ctx)
	if errors.Is(err, checkpoint.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last checkpoint of the %s run: %w", p.name, err)
	}
	return inspect.OfCheckpoint(found), nil
}
