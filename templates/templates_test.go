package templates_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/jobfile"
	"ddpbatch/templates"
)

// parse reads a starter as if it were in /jobs.
func parse(t *testing.T, text string) *jobfile.Job {
	t.Helper()
	job, warnings, err := jobfile.Parse("job.toml", "/jobs", []byte(text), nil)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %v", err, warnings)
	}
	return job
}

func TestStartersAreJobs(t *testing.T) {
	for _, s := range templates.Starters() {
		t.Run(s.Name, func(t *testing.T) {
			if job := parse(t, s.Text); job.Name != s.Name {
				t.Errorf("the job's name is %q", job.Name)
			}
		})
	}
}

var switchedOff = regexp.MustCompile(`(?m)^#([a-z])`)

// A line that begins with "#" and no space is a setting, and it is also valid when it is switched on.
func TestSettingsToSwitchOn(t *testing.T) {
	for _, s := range templates.Starters() {
		t.Run(s.Name, func(t *testing.T) { parse(t, switchedOff.ReplaceAllString(s.Text, "$1")) })
	}
}

// In the simulate starter, 4096 rows for 2 x 2 ranks in batches of 32 make 32 steps per epoch.
func TestSimulateIsWhatTheReadmePromises(t *testing.T) {
	s, ok := templates.Find("simulate")
	if !ok {
		t.Fatal("no starter simulate")
	}
	job := parse(t, s.Text)
	data := job.Train.Data
	world := job.Nodes() * job.MaxNproc()
	if world != 4 || data.Kind != "generated" || data.Rows != 4096 || data.Inputs != 20 || data.Outputs != 1 ||
		job.Train.BatchSize*world*32 != data.Rows {
		t.Errorf("world %d, batches of %d, data %+v", world, job.Train.BatchSize, data)
	}
	if job.Train.Model.Kind != "dense" || job.Train.Loss != "mse" || job.Train.Epochs != 2 || job.Checkpoint.EverySteps != 16 ||
		job.Checkpoint.KeepLast != 3 {
		t.Errorf("%+v, %+v", job.Train, job.Checkpoint)
	}
}

func TestStartersAreListedOnce(t *testing.T) {
	var names []string
	for _, s := range templates.Starters() {
		names = append(names, s.Name)
		if s.Summary == "" || strings.ContainsAny(s.Summary, "\n.") || !strings.HasPrefix(s.Text, "# ") {
			t.Errorf("%s: summary %q", s.Name, s.Summary)
		}
	}
	want := []string{"simulate", "mnist", "gpt", "pytorch", "torchrun", "command", "task", "process", "array", "sweep", "container",
		"chain", "parallelcluster"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if _, ok := templates.Find("nonesuch"); ok {
		t.Error("found a starter that is not there")
	}
	files, err := os.ReadDir("jobs")
	if err != nil || len(files) != len(names) {
		t.Errorf("%d files in jobs, %d starters: %v", len(files), len(names), err)
	}
}

// Each embedded file belongs to a starter, and the starter's job file names it.
func TestFilesBesideStarters(t *testing.T) {
	beside := map[string]bool{}
	for _, s := range templates.Starters() {
		for _, file := range s.Files {
			beside[file.Name] = true
			if !strings.Contains(s.Text, file.Name) || file.Text == "" {
				t.Errorf("%s: %s, of %d bytes, is not named in the job file", s.Name, file.Name, len(file.Text))
			}
		}
	}
	files, err := os.ReadDir("files")
	if err != nil || len(files) != len(beside) {
		t.Errorf("%d files in files, %d beside starters: %v", len(files), len(beside), err)
	}
}

func TestBatchIsAScript(t *testing.T) {
	if !strings.HasPrefix(templates.Batch, "#!/") {
		t.Errorf("the batch script begins with %.20q", templates.Batch)
	}
}
