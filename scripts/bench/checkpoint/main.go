// Command checkpoint saves and loads the same state with ddpbatch, PyTorch, zstd and plain file calls on this machine, in turn, and
// compares them. scripts/bench-checkpoint builds and starts it, in the root of the repository.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ddpbatch/internal/usage"
	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/gobench"
	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/tools"
)

var bench = command.Program[options]{Name: "bench-checkpoint", Parse: parseOptions, Do: run}

func main() { bench.Main() }

func run(ctx context.Context, o options, dir string, stdout, stderr io.Writer) (err error) {
	var p prepared
	if !o.figures {
		if p, err = prepare(ctx, dir); err != nil {
			return err
		}
	}
	s := newTrainingState(o.mib << 20)
	r := results{Header: newHeader(o, dir, p.torch)}
	r.Header.Print(stdout)
	if !o.figures {
		if err := r.compare(ctx, s, o, p, dir, stdout, stderr); err != nil {
			return err
		}
	}
	r.Figures, err = paired.MeasureFigures(ctx, experiments(s, dir, o.Launches), stderr)
	report.Figures(stdout, "checksums, memory, latest and commit", r.Figures)
	return errors.Join(err, o.WriteJSON(r))
}

// compare measures the codec, and then whole checkpoints and those of the peers. It prints and saves each table at once, because the rest
// takes minutes.
func (r *results) compare(ctx context.Context, s *trainingState, o options, p prepared, dir string, stdout,
	progress io.Writer) (err error) {
	fmt.Fprintln(progress, "one thread, in memory: planes and zstd -1")
	if r.Codecs, err = measureCodecs(ctx, p.codec, dir, o.Launches); err != nil {
		return err
	}
	r.printCodecs(stdout)
	if err := o.WriteJSON(r); err != nil {
		return err
	}
	file := filepath.Join(dir, "state")
	if _, err := writeState(s, file, false); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	py, err := startTorch(ctx, p.python, file, s.elements())
	if err != nil {
		return err
	}
	defer py.stop()
	for _, c := range comparisons(s, file, py) {
		row, err := c.measure(ctx, o.Launches, dir, progress)
		if err != nil {
			return err
		}
		row.print(stdout)
		r.Rows = append(r.Rows, row)
		if err := o.WriteJSON(r); err != nil {
			return err
		}
	}
	return nil
}

// options are the options of the command line.
type options struct {
	command.Common
	mib     int  // of the state
	figures bool // only what has no peer
}

const usageText = `Checkpoints: ddpbatch beside torch.save and torch.load, zstd, and writing the bare bytes; the same state, in turn.

  ./scripts/bench-checkpoint --quick
  ./scripts/bench-checkpoint --figures --mib 128
  ./scripts/bench-checkpoint --dir /scratch --mib 1024 --json checkpoint.json >checkpoint.md

Tables are Markdown, on standard output; progress goes to standard error.
needs: Go and, on Debian, apt-get install python3-torch zstd

`

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	f := command.NewFlags(&o.Common, usageText, " of 96 MiB", map[string]string{"mib": "96"})
	f.IntVar(&o.mib, "mib", 384, "size of the state, in `MIB`")
	f.StringVar(&o.Below, "dir", os.TempDir(), "`FOLDER` on the disk to measure")
	f.BoolVar(&o.figures, "figures", false,
		"only checksums, incompressible data, memory, latest and commit, which need neither PyTorch nor zstd")
	if err := f.Parse(args, stderr); err != nil {
		return o, err
	}
	if o.mib < 12 || o.mib > 1<<16 {
		return o, usage.Errorf("-mib is %d; it must be 12 to %d", o.mib, 1<<16)
	}
	if info, err := os.Stat(o.Below); err != nil || !info.IsDir() {
		return o, usage.Errorf("-dir: %s is not a folder", o.Below)
	}
	return o, nil
}

// prepared holds the programs that are started.
type prepared struct {
	python string // one that has PyTorch
	torch  string // its version
	codec  gobench.Program
}

// prepare finds the peers and builds the benchmarks, in dir. Its error names everything that is missing.
func prepare(ctx context.Context, dir string) (p prepared, err error) {
	python, version, err := tools.FindTorch(ctx)
	if err = errors.Join(err, tools.FindZstd()); err != nil {
		return p, fmt.Errorf("%w\n  or measure what needs neither: --figures", err)
	}
	p = prepared{python: python, torch: version}
	p.codec, err = gobench.Build(ctx, dir, codecPackage)
	return p, err
}
