package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/jobfile"
	"ddpbatch/trainer"
)

func exportFlag() cli.Flag {
	return &cli.StringFlag{Name: "export", Usage: "write the final model to `FILE`.safetensors"}
}

// withExport turns --export into the job's key.
func withExport(e *env, c *cli.Context, sets []string) []string {
	if !c.IsSet("export") {
		return sets
	}
	quoted, _ := json.Marshal(e.abs(c.String("export"))) // JSON's text is TOML's, too
	return append(sets, "train.export="+string(quoted))
}

// export writes the model of the last step to where the job wants it.
func (r *rank) export(ctx context.Context, result trainer.Result) error {
	file := exportPath(r.job)
	if file == "" || result.Checkpoint == "" {
		return nil
	}
	saved, err := r.checkpoints.Find(ctx, result.Steps)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer saved.Close()
	x, err := inspect.NewExport(saved, "", false)
	if err == nil {
		err = x.Write(ctx, inspect.SafetensorsFile, file)
	}
	if err != nil {
		return err
	}
	r.exported = file
	return nil
}

// exportPath is where a job wants its final model; empty: nowhere.
func exportPath(job *jobfile.Job) string {
	if file := job.Train.Export; file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(job.WorkDir, job.Train.Export)
}
