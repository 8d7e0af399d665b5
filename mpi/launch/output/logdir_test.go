package output

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestLogDirKeepsEveryRoundApart(t *testing.T) {
	base := filepath.Join(t.TempDir(), "deep", "logs")
	d, err := NewLogDir(base, "job 7")
	must(t, err)
	if rel, err := filepath.Rel(base, d.path); err != nil || !regexp.MustCompile(`^job 7_[0-9]+$`).MatchString(rel) {
		t.Errorf("the run's folder is %s", d.path)
	}
	for _, round := range []int{0, 1, 0} { // the third time must not lose what the first time wrote
		streams, errorFile, err := d.Worker(round, 12)
		must(t, err)
		want := filepath.Join(d.path, "attempt_"+string(rune('0'+round)), "12")
		if streams != (Paths{want + "/stdout.log", want + "/stderr.log"}) || errorFile != want+"/error.json" {
			t.Fatalf("paths are %v and %s", streams, errorFile)
		}
		f, err := openLog(streams.Out)
		must(t, err)
		_, err = f.WriteString("x")
		must(t, err)
		must(t, f.Close())
	}
	if got := read(t, filepath.Join(d.path, "attempt_0", "12", "stdout.log")); got != "xx" {
		t.Errorf("round 0 has %q", got)
	}
	filtered, err := d.Filtered(3)
	must(t, err)
	if want := filepath.Join(d.path, "attempt_3", "filtered_stderr.log"); filtered.Err != want {
		t.Errorf("the file of all ranks is %s, want %s", filtered.Err, want)
	}
	must(t, os.WriteFile(filtered.Err, nil, 0o600))
	other, err := NewLogDir(base, "job 7") // as another agent of the same node does
	must(t, err)
	if other.path == d.path {
		t.Error("two agents have one folder")
	}
}

func TestLogDirNameCannotLeaveItsFolder(t *testing.T) {
	base := t.TempDir()
	for _, id := range []string{"", ".", "..", "../../x", "a/b", "*", "a*b", "\x00", "a\nb", strings.Repeat("ü", 200), "\xff\xfe"} {
		d, err := NewLogDir(base, id)
		if err != nil {
			t.Errorf("%q: %v", id, err)
		} else if filepath.Dir(d.path) != base || strings.HasPrefix(filepath.Base(d.path), ".") {
			t.Errorf("%q: %s", id, d.path)
		}
	}
	file := filepath.Join(base, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := NewLogDir(file, "x"); err == nil {
		t.Error("a file was taken for a folder")
	}
	d, err := NewLogDir("/dev/null", "x")
	must(t, err)
	streams, errorFile, err := d.Worker(0, 0)
	filtered, filteredErr := d.Filtered(0)
	if streams != (Paths{}) || errorFile != "" || err != nil || filtered != (Paths{}) || filteredErr != nil {
		t.Errorf("no files were asked for: %v %s %v", streams, errorFile, err)
	}
}
