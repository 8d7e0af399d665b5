package jobfile

import (
	"os"
	"path/filepath"
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

// TestCheckFilesFollowsLinks: the file that is looked for is the one that the trainer opens. Behind a link, .. is not the folder that is
// written before it.
func TestCheckFilesFollowsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"data/v1", "data/v2"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "data/v2/t.csv"), []byte("0,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("data/v1", filepath.Join(dir, "current")); err != nil {
		t.Fatal(err)
	}
	for path, there := range map[string]bool{
		"/current/../v2/t.csv": true,
		"/data/v2/t.csv/":      false, // which open(2) refuses
		"/v2/t.csv":            false,
	} {
		job := Job{WorkDir: "/", Train: trainer.Config{Data: trainer.DataConfig{Kind: "csv", Path: dir + path}, Export: dir + "/current/../m"}}
		if err := job.CheckFiles(); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
		if got := job.ExportPath(); got != dir+"/current/../m" {
			t.Errorf("the model goes to %s", got)
		}
	}
}
