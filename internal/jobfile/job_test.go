package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

func TestWorldFollowsNodesAndRanks(t *testing.T) {
	for _, test := range []struct {
		name, src  string
		nodes, max int
	}{
		{"the defaults", "", 1, 1},
		{"one number", "slurm.nodes = 3\nlaunch.nproc_per_node = 2", 3, 2},
		{"a list", "slurm.nodes = 3\nlaunch.nproc_per_node = [2, 4, 1]", 3, 4},
		{"a list of one", "slurm.nodes = 2\nlaunch.nproc_per_node = [3]", 2, 3},
		{"what only the node knows", "slurm.nodes = 2\nlaunch.nproc_per_node = \"gpu\"", 2, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			job, _, err := parse("name = \"x\"\n" + test.src + builtin)
			if err != nil {
				t.Fatal(err)
			}
			if job.Nodes() != test.nodes || job.MaxNproc() != test.max {
				t.Errorf("got %d nodes of at most %d ranks", job.Nodes(), job.MaxNproc())
			}
		})
	}
}

func TestJobKnowsBuiltinAndCores(t *testing.T) {
	job, _, err := parse("name = \"x\"" + builtin)
	if err != nil || !job.Builtin() || job.CPUsPerRank() != 0 {
		t.Errorf("%+v, %v", job, err)
	}
	job, _, err = parse("name = \"x\"\nslurm.cpus_per_task = 8" + command)
	if err != nil || job.Builtin() || job.CPUsPerRank() != 8 {
		t.Errorf("%+v, %v", job, err)
	}
}

func TestFlagsThatAreFalseAskForNothing(t *testing.T) {
	job, _, err := parse("name = \"x\"\n[slurm]\nhold = false\nexclusive = true" + command)
	want := []slurm.Option{{Name: "exclusive", Flag: true}}
	if err != nil || !reflect.DeepEqual(job.Slurm.List, want) {
		t.Errorf("%+v, %v, want %+v", job, err, want)
	}
}

// TestJobsSurviveJSON: the packages accept the settings from a job file, and spec.json gives back the same job.
func TestJobsSurviveJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job, _, err := parse(jobSource(t))
		if err != nil {
			t.Fatal(err)
		}
		checkJob(t, job)
	})
}

func checkJob(t interface{ Fatalf(string, ...any) }, job *Job) {
	if err := errors.Join(job.MPI.Validate(), job.Checkpoint.Validate()); err != nil {
		t.Fatalf("the packages refuse %+v: %v", job, err)
	}
	if err := job.Train.Validate(); job.Builtin() && err != nil {
		t.Fatalf("the trainer refuses %+v: %v", job, err)
	}
	data, err := json.Marshal(job)
	if err != nil {
		t.Fatalf("%v", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var back Job
	if err := decoder.Decode(&back); err != nil || !reflect.DeepEqual(&back, job) {
		t.Fatalf("%v: got\n%+v\nwant\n%+v\nby way of %s", err, &back, job, data)
	}
}

// jobSource draws a valid job file: each of these lines may be present, in any order.
func jobSource(t *rapid.T) string {
	text := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return !words.Unsafe(r) }))
	quote := func(s string) string {
		q := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
		return `"` + q + `"`
	}
	number := rapid.IntRange(2, 1000)
	settings := []string{
		"workdir = " + quote("/"+text.Draw(t, "workdir")),
		"setup.env.A = " + quote(text.Draw(t, "A")),
		"setup.env._b1 = " + quote(text.Draw(t, "b")),
		"setup.modules = []",
		"code = { snapshot = \"git\", include = [\"*.yaml\"], max_files = 3 }",
		"setup.script = [" + quote(text.Draw(t, "script")) + ", \"\"\"a\nb\"\"\"]",
		fmt.Sprintf("slurm.nodes = %d", number.Draw(t, "nodes")),
		"slurm.partition = \"cpu\"",
		"slurm.exclusive = " + rapid.SampledFrom([]string{"true", "false", `"user"`}).Draw(t, "exclusive"),
		"slurm.extra = []",
		"slurm.skip = [\"--mem\"]",
		"launch.nproc_per_node = " + rapid.SampledFrom([]string{"3", "[2]", `"gpu"`, `"cpu"`, `"auto"`}).Draw(t, "nproc"),
		"launch.check = " + rapid.SampledFrom([]string{`["nhc"]`, `["sh", "-c", ""]`, `[["nhc"], ["nvidia-smi", "-L"]]`}).Draw(t, "check"),
		fmt.Sprintf("launch.grace = \"%dms\"", number.Draw(t, "grace")),
		"launch.command = [\"\", " + quote(text.Draw(t, "command")) + "]",
		fmt.Sprintf("train.seed = %d", rapid.Uint32().Draw(t, "seed")),
		fmt.Sprintf("train.optimizer.lr = %g", rapid.Float64Range(1e-12, 1e12).Draw(t, "lr")),
		fmt.Sprintf("checkpoint.keep_last = %d", number.Draw(t, "keep")),
		fmt.Sprintf("checkpoint.keep_within = \"%dh\"", number.Draw(t, "hours")),
		fmt.Sprintf("checkpoint.memory = \"%dG\"", number.Draw(t, "memory")),
		fmt.Sprintf("checkpoint.delta = %d", number.Draw(t, "delta")),
		"checkpoint.local = " + quote("/"+text.Draw(t, "local")),
	}
	chosen := []string{
		"name = \"x\"", `train.loss = "mse"`, `train.data.kind = "generated"`,
		"train.model = { kind = \"mlp\", hidden = [3, 4] }",
	}
	for _, s := range settings {
		if rapid.Bool().Draw(t, "keep "+strings.Fields(s)[0]) {
			chosen = append(chosen, s)
		}
	}
	return strings.Join(rapid.Permutation(chosen).Draw(t, "order"), "\n")
}

// TestMoreTrainingNamesWhatEndedTheRun: MoreTraining names a larger value for every limit that ended the run.
func TestMoreTrainingNamesWhatEndedTheRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		maxSteps, epochs, patience int
		steps                      int64
		trained                    int // epochs
		early                      bool
		want                       []string
	}{
		"epochs":         {epochs: 3, steps: 30, trained: 3, want: []string{"train.epochs=6"}},
		"epochs, before": {epochs: 3, maxSteps: 40, steps: 30, trained: 3, want: []string{"train.epochs=6"}},
		"max_steps":      {epochs: 3, maxSteps: 20, steps: 20, trained: 2, want: []string{"train.max_steps=40"}},
		"both":           {epochs: 3, maxSteps: 30, steps: 30, trained: 3, want: []string{"train.max_steps=60", "train.epochs=6"}},
		"patience":       {epochs: 3, patience: 2, steps: 20, trained: 2, early: true, want: []string{"train.evaluate.patience=4"}},
		"patience, at last": {epochs: 3, patience: 2, steps: 30, trained: 3, early: true,
			want: []string{"train.evaluate.patience=4", "train.epochs=6"}},
		"patience, max_steps": {epochs: 3, maxSteps: 20, patience: 2, steps: 20, trained: 2, early: true,
			want: []string{"train.evaluate.patience=4", "train.max_steps=40"}},
		"fewer epochs": {epochs: 1, steps: 30, trained: 3, want: []string{"train.epochs=6"}},
	} {
		job := Job{Train: trainer.Config{Epochs: tt.epochs, MaxSteps: tt.maxSteps, Evaluate: trainer.EvaluateConfig{Patience: tt.patience}}}
		if got := job.MoreTraining(tt.steps, tt.trained, tt.early); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
