package jobfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ddpbatch/trainer"
)

func TestPathsResolveAgainstTheFolder(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	for _, test := range []struct {
		path, dir string
		want      string
		err       error
	}{
		{".", "/jobs", "/jobs", nil},
		{"a/../b/", "/jobs", "/jobs/b", nil},
		{"../x", "/jobs/a", "/jobs/x", nil},
		{"/x", "/jobs", "/x", nil},
		{"~/x", "/jobs", "/home/ann/x", nil},
		{"~", "/jobs", "/home/ann", nil},
		{"a/~", "/jobs", "/jobs/a/~", nil},
		{"~ann", "/jobs", "", errOtherHome},
		{"x", "jobs", "", errRelative},
		{"x", "/jo\nbs", "", errPathText},
		{"x", "/jo\xffbs", "", errPathText},
	} {
		got, err := absolute(test.path, test.dir)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%q in %q: got %q, %v, want %q, %v", test.path, test.dir, got, err, test.want, test.err)
		}
	}
	t.Setenv("HOME", "")
	if got, err := absolute("~/x", "/jobs"); err == nil || err.Error() != "$HOME is not defined" {
		t.Errorf("got %q, %v without a home", got, err)
	}
}

// TestCheckFilesFollowsLinks: CheckFiles looks for the file that the trainer will open. Behind a link, .. is not the folder that precedes
// it in the path.
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
		"/data/v2/t.csv/":      false, // open(2) refuses it
		"/v2/t.csv":            false,
	} {
		data := trainer.DataConfig{Kind: "csv", Path: dir + path}
		job := Job{WorkDir: "/", Train: trainer.Config{Data: data, Export: dir + "/current/../m"}}
		if err := job.CheckFiles(); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
		if got := job.ExportPath(); got != dir+"/current/../m" {
			t.Errorf("the model goes to %s", got)
		}
	}
}
