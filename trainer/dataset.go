package trainer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"ddpbatch/internal/vfs"
	"ddpbatch/trainer/data"
)

// errStopped: a rank was asked to stop before it had its data, when there was nothing to save.
var errStopped = errors.New("stopped before training")

// openData opens the rows of this rank, and gives up if this rank is asked to stop: opening may wait for another process that prepares the
// data, and no collective is in progress.
func (t *trainer) openData(ctx context.Context) (err error) {
	opening, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-t.env.Stop:
			end(errStopped)
		case <-opening.Done():
		}
	}()
	t.train, t.eval, err = openData(opening, t.cfg, t.env.WorkDir, t.log)
	if errors.Is(err, context.Canceled) && context.Cause(opening) == errStopped {
		t.log.Warn("asked to stop while opening the data", "err", err)
		return errStopped
	}
	return err
}

// openData returns the rows to train on and those to evaluate on, which are nil if there are none.
func openData(ctx context.Context, cfg Config, workDir string, log *slog.Logger) (train, eval data.Dataset, err error) {
	whole, err := openWhole(ctx, cfg, workDir, log)
	if err != nil {
		return nil, nil, err
	}
	if got := lossFor(whole.Spec()); got != cfg.Loss {
		return nil, nil, fmt.Errorf("loss is %q, but the targets of the data need %q", cfg.Loss, got)
	}
	train = whole
	if cfg.Data.Train != "" {
		if train, err = subset(whole, cfg.Data.Train); err != nil {
			return nil, nil, fmt.Errorf("data.train: %w", err)
		}
	}
	if cfg.Data.Eval != "" {
		if eval, err = subset(whole, cfg.Data.Eval); err != nil {
			return nil, nil, fmt.Errorf("data.eval: %w", err)
		}
	}
	return train, eval, nil
}

func lossFor(spec data.Spec) string {
	if spec.Classes > 0 {
		return "cross_entropy"
	}
	return "mse"
}

func openWhole(ctx context.Context, cfg Config, workDir string, log *slog.Logger) (data.Dataset, error) {
	d := cfg.Data
	var cache *data.Cache
	if d.Cache != "" {
		cache = &data.Cache{Dir: below(workDir, d.Cache), Log: log}
	}
	path := below(workDir, d.Path)
	switch d.Kind {
	case "generated":
		return data.Generate(d.generated(cfg.Seed))
	case "cifar10":
		files := make([]string, len(d.Files))
		for i, f := range d.Files {
			files[i] = below(workDir, f)
		}
		return named("data.files names the files")(data.LoadCIFAR10(files...))
	case "csv":
		return named("data.path names the file")(data.LoadCSV(ctx, cache, d.csv(path, cfg.Loss)))
	case "npy":
		return named("data.inputs and data.targets name the files")(data.LoadNPY(data.NPYConfig{
			Inputs: below(workDir, d.InputFile), Targets: below(workDir, d.TargetFile),
		}))
	case "text":
		return named("data.path names the file or folder")(data.OpenText(ctx, cache, path, cfg.Model.Context))
	}
	return named("data.images and data.labels name the files")(data.LoadMNIST(ctx, cache, below(workDir, d.Images),
		below(workDir, d.Labels)))
}

// csv returns how to read the CSV file at path for a loss.
func (d DataConfig) csv(path, loss string) data.CSVConfig {
	return data.CSVConfig{Path: path, Delimiter: d.Delimiter, Header: d.Header, Targets: d.Target, Regression: loss == "mse"}
}

func (d DataConfig) generated(seed uint64) data.GeneratedConfig {
	return data.GeneratedConfig{Rows: d.Rows, Inputs: d.Inputs, Outputs: d.Outputs, Noise: d.Noise, Seed: seed}
}

// File is a file that a job reads, and its key below [train].
type File struct{ Key, Path string }

// Files returns the files that the job names, as they are written there.
func (c Config) Files() []File {
	var all []File
	add := func(key, path string) {
		if path != "" {
			all = append(all, File{key, path})
		}
	}
	switch d := c.Data; d.Kind {
	case "mnist":
		add("data.images", d.Images)
		add("data.labels", d.Labels)
	case "cifar10":
		for _, path := range d.Files {
			add("data.files", path)
		}
	case "csv", "text":
		add("data.path", d.Path)
	case "npy":
		add("data.inputs", d.InputFile)
		add("data.targets", d.TargetFile)
	}
	add("init", c.Init)
	return all
}

// Overlap returns the rows that are both trained on and evaluated. ok is false if there are none, or if a range is invalid.
func (d DataConfig) Overlap() (rows data.Range, ok bool) {
	train, err := data.ParseRange(d.Train)
	if err != nil {
		return rows, false
	}
	eval, err := data.ParseRange(d.Eval)
	rows = data.Range{First: max(train.First, eval.First), End: min(train.End, eval.End)}
	return rows, err == nil && rows.First < rows.End
}

// CheckRows returns an error for each range of rows that goes beyond the data, joined, as far as the headers of the data's files say how
// many rows there are, and an error if the headers of .npy files do not fit the job. Each error begins with its key. CheckRows does not
// report files that cannot be opened, or headers of another kind that cannot be read. at returns where a file of Files is on this machine.
func (c Config) CheckRows(at func(path string) string) error {
	whole := c
	whole.Init = "" // not a file of the data
	var paths []string
	for _, f := range whole.Files() {
		paths = append(paths, at(f.Path))
	}
	if c.Data.Kind == "npy" && len(paths) == 2 {
		classes, err := data.CheckNPY(data.NPYConfig{Inputs: paths[0], Targets: paths[1]})
		need := "mse"
		if classes {
			need = "cross_entropy"
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
			return nil
		case err != nil:
			return errors.Join(fmt.Errorf("data.inputs: %w", err))
		case need != c.Loss:
			return errors.Join(fmt.Errorf("loss: it is %q, but the targets of the data need %q", c.Loss, need))
		}
	}
	rows, err := data.CountRows(c.Data.Kind, paths...)
	if err != nil {
		return nil
	}
	var errs []error
	for _, r := range []struct{ key, text string }{{"data.train", c.Data.Train}, {"data.eval", c.Data.Eval}} {
		if span, err := data.ParseRange(r.text); err == nil && span.End > rows {
			errs = append(errs, fmt.Errorf("%s: range %v goes beyond the data, which has %d rows", r.key, span, rows))
		}
	}
	return errors.Join(errs...)
}

// named returns a function that adds to an error the keys of the job that it is about.
func named(keys string) func(data.Dataset, error) (data.Dataset, error) {
	return func(d data.Dataset, err error) (data.Dataset, error) {
		if errors.Is(err, vfs.ErrExposed) {
			keys = "data.cache names the folder"
		}
		if err != nil {
			return nil, fmt.Errorf("%w (%s, relative to workdir)", err, keys)
		}
		return d, nil
	}
}

func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func subset(d data.Dataset, text string) (data.Dataset, error) {
	r, err := data.ParseRange(text)
	if err != nil {
		return nil, err
	}
	return data.Subset(d, r)
}
