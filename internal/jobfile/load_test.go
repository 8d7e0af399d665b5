package jobfile

import (
	"errors"
	"strings"
	"testing"
)

func TestParseResolvesAgainstTheFilesFolder(t *testing.T) {
	job, warnings, err := Parse("job.toml", "/jobs", []byte("name = \"x\"\nworkdir = \"w\""+command), []string{"run_dir=r"})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if job.WorkDir != "/jobs/w" || job.RunDir != "/jobs/r" {
		t.Errorf("got %q and %q, below /jobs", job.WorkDir, job.RunDir)
	}
	checkJob(t, job)
}

func TestParseKnowsTheHomeOfTheUser(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	job, _, err := Parse("job.toml", "/jobs", []byte("name = \"x\"\nworkdir = \"~/w\""+command), nil)
	if err != nil || job.WorkDir != "/home/ann/w" {
		t.Errorf("%+v, %v", job, err)
	}
}

func TestParseNamesTheFileAsItWasGiven(t *testing.T) {
	_, _, err := Parse("./a.toml", "/jobs", []byte("nmae = 1"+command), nil)
	want := "./a.toml:1:1: unknown key nmae: did you mean name?\n./a.toml:1:1: a job needs the key name"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestParseOfALargeFile(t *testing.T) {
	var faults Faults
	if _, _, err := Parse("large", "/jobs", []byte(strings.Repeat("#\n", maxSize)), nil); !errors.As(err, &faults) {
		t.Errorf("a large file: %v", err)
	}
}

// FuzzParse holds that whatever a file and an override hold, Parse does not panic, faults have their
// place in the file, in its order, and a job that comes out survives JSON.
func FuzzParse(f *testing.F) {
	f.Add("name = \"x\""+builtin, "train.epochs=2")
	f.Add("name = \"x\"\nslurm.nodes = 2\nlaunch.nproc_per_node = [1, 2]"+command, "slurm.nodes=3")
	f.Add("[train]\ndata = { kind = 3 }\nmodel = [{}]\n[[slurm]]\n[requeue.max]\nx = 1", "a.b=[1")
	f.Add("'' = 1\n\"a\\nb\" = 2\n[setup.env]\n\"=\" = 1", ".=")
	f.Add("a = \"\"\"\n\r\n", "name={}")
	f.Fuzz(func(t *testing.T, src, set string) {
		job, warnings, err := parse(src, set)
		if (job == nil) != (err != nil) {
			t.Fatalf("job %v, error %v", job, err)
		}
		var faults Faults
		if err != nil && (!errors.As(err, &faults) || len(faults) == 0) {
			t.Fatalf("the error is %#v", err)
		}
		checkPositions(t, src, faults)
		checkPositions(t, src, warnings)
		if job != nil {
			checkJob(t, job)
		}
	})
}

func checkPositions(t *testing.T, src string, faults []Fault) {
	t.Helper()
	lines := strings.Split(src, "\n")
	last := Fault{Line: 1}
	for _, f := range faults {
		if strings.HasPrefix(f.File, "--set ") {
			last = Fault{Line: len(lines) + 1}
			continue
		}
		if f.Line < 1 || f.Line > len(lines) || f.Column < 1 || f.Column > len(lines[f.Line-1])+1 {
			t.Fatalf("%v is not in %q", f, src)
		}
		if f.Line < last.Line || f.Line == last.Line && f.Column < last.Column {
			t.Fatalf("%v comes after %v", f, last)
		}
		last = f
	}
}
