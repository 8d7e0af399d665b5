package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
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
	state, err := r.checkpoints.Load(ctx, result.Steps)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if err := exportModel(state, file); err != nil {
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

// modelPrefix is what the trainer puts before the names of a model's tensors.
const modelPrefix = "model."

// exportModel writes the model in a checkpoint to a safetensors file, by the names that PyTorch has for its parts.
func exportModel(s *checkpoint.State, file string) error {
	var model []checkpoint.Tensor
	for _, t := range s.Tensors {
		if name, ok := strings.CutPrefix(t.Name, modelPrefix); ok {
			t.Name = name
			model = append(model, t)
		}
	}
	if len(model) == 0 {
		return fmt.Errorf("export: the checkpoint of step %d holds no model: its tensors are not named %q", s.Step, modelPrefix+"*")
	}
	if err := checkpoint.WriteSafetensors(file, model, map[string]string{"format": "pt", "step": fmt.Sprint(s.Step)}); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}
