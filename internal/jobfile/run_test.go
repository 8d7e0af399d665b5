package jobfile

import (
	"slices"
	"testing"

	"ddpbatch/trainer"
)

// TestMoreTraining: what goes on with a run is more of everything that has ended it.
func TestMoreTraining(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		maxSteps, epochs, patience int
		steps                      int64
		trained                    int // epochs
		early                      bool
		want                       []string
	}{
		"epochs":              {epochs: 3, steps: 30, trained: 3, want: []string{"train.epochs=6"}},
		"epochs, before":      {epochs: 3, maxSteps: 40, steps: 30, trained: 3, want: []string{"train.epochs=6"}},
		"max_steps":           {epochs: 3, maxSteps: 20, steps: 20, trained: 2, want: []string{"train.max_steps=40"}},
		"both":                {epochs: 3, maxSteps: 30, steps: 30, trained: 3, want: []string{"train.max_steps=60", "train.epochs=6"}},
		"patience":            {epochs: 3, patience: 2, steps: 20, trained: 2, early: true, want: []string{"train.evaluate.patience=4"}},
		"patience, at last":   {epochs: 3, patience: 2, steps: 30, trained: 3, early: true, want: []string{"train.evaluate.patience=4", "train.epochs=6"}},
		"patience, max_steps": {epochs: 3, maxSteps: 20, patience: 2, steps: 20, trained: 2, early: true, want: []string{"train.evaluate.patience=4", "train.max_steps=40"}},
		"fewer epochs":        {epochs: 1, steps: 30, trained: 3, want: []string{"train.epochs=6"}},
	} {
		job := Job{Train: trainer.Config{Epochs: tt.epochs, MaxSteps: tt.maxSteps, Evaluate: trainer.EvaluateConfig{Patience: tt.patience}}}
		if got := job.MoreTraining(tt.steps, tt.trained, tt.early); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
