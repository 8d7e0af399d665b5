package jobfile

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// place makes files below a folder, and the folders that contain them.
func place(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesThatAreNotThereAreRemarkedOn(t *testing.T) {
	dir := t.TempDir()
	place(t, dir, "train.py", "bin/tool", "venv/bin/activate", "venv/bin/mytrain", "sub/other.py", "plain.py", "real/env2/bin/activate",
		"real/code/train.py")
	if err := os.Symlink("real/code", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "plain.py"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`launch.command = ["tool", "train.py"]`: "",
		`launch.command = ["nowhere"]`: `2:8: launch.command: the program "nowhere" was ` +
			`not found on this machine`,
		`launch.command = ["nowhere"]` + "\nsetup.modules = [\"pytorch\"]": "",
		`launch.command = ["nowhere"]` + "\nsetup.script = [\"PATH=/x\"]":  "",
		`launch.command = ["nowhere"]` + "\nsetup.env.PATH = \"/x\"":       "",
		`launch.command = ["mytrain"]` + "\nsetup.venv = \"venv\"":         "",
		`launch.command = ["bin/tool"]`:                                    "",
		`launch.command = ["./plain.py"]`: `2:8: launch.command: the file "./plain.py" is ` +
			`not executable: chmod +x it`,
		`launch.command = ["./train"]`: `2:8: launch.command: the program "./train" was not found `,
		`launch.command = ["./bin"]`:   `2:8: launch.command: the program "./bin" was not found `,
		`launch.command = ["tool"]` +
			"\nsetup.venv = \"env\"": `3:7: setup.venv: "` +
			dir + "/env/bin/activate\" does not exist",
		`launch.command = ["tool"]` + "\nsetup.venv = \"$HOME/env\"": `3:7: setup.venv: "` +
			dir + "/$HOME/env/bin/activate\" does not exist",
		`launch.command = ["tool"]` + "\nworkdir = \"link\"\nsetup.venv = \"../env2\"": "", // beside the folder to which link points
		`launch.command = ["./tool"]` + "\nworkdir = \"none\"": `3:1: workdir: the folder "` +
			dir + "/none\" does not exist",
		`launch.command = ["python", "train.py"]` + "\nsetup.modules = [\"a\"]": "",
		`launch.command = ["python", "-u", "trein.py"]` +
			"\nsetup.modules = [\"a\"]": `2:8: launch.command: the script "trein.py" does not exist`,
		`launch.command = ["python", "other.py"]` + "\nworkdir = \"sub\"\nsetup.modules = [\"a\"]": "",
		`launch.command = ["python", "-m", "pkg", "x.py"]` + "\nsetup.modules = [\"a\"]":           "",
		`launch.command = ["/bin/bash", "run.sh", "x.py"]`: `2:8: launch.command: the ` +
			`script "run.sh" does not exist`,
		`launch.command = ["/bin/bash", "-lc", "run.sh"]`:                                                    "",
		`launch.command = ["/bin/bash", "--rcfile", "x.sh", "run.sh"]`:                                       "",
		`launch.command = ["/bin/bash", "-lc", "cd x && ./run.sh"]`:                                          "",
		`launch.command = ["apptainer", "exec", "i.sif", "python", "/w/x.py"]` + "\nsetup.modules = [\"a\"]": "",
	} {
		_, warnings, err := (*Defaults)(nil).ParseWith("job.toml", dir, []byte("name = \"x\"\n"+text+"\n"), nil,
			FileRemarks(filepath.Join(dir, "bin")))
		got := lines(warnings)
		if err != nil || want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "job.toml:"+want)) {
			t.Errorf("%s\n: %v, %q, want %q", text, err, got, want)
		}
	}
}

func TestHeadersOfArraysAreRemarkedOn(t *testing.T) {
	array := func(descr, shape string, size int) []byte {
		header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape)
		return append([]byte("\x93NUMPY\x01\x00"+string(rune(len(header)))+"\x00"+header), make([]byte, size)...)
	}
	src := []byte("name = \"x\"\n[train]\nloss = \"mse\"\nmodel.kind = \"dense\"\n" +
		"data = { kind = \"npy\", inputs = \"x.npy\", targets = \"y.npy\" }\n")
	for _, test := range []struct {
		inputs, targets []byte
		want            string // empty: no remark
	}{
		{array("<f4", "(2, 3)", 24), array("<f4", "(2,)", 8), ""},
		{array("<c8", "(2, 3)", 48), array("<f4", "(2,)", 8), `train.data.inputs: read npy: .*/x.npy: elements of the type "<c8" are not`},
		{array("<f4", "(2, 3)", 24), array("<f4", "(3,)", 12), "train.data.inputs: read npy: .* do not belong together$"},
		{array("<f4", "(2, 3)", 24), array("<i8", "(2,)", 16), `train.loss: it is "mse", but .* of the data need "cross_entropy"$`},
		{nil, array("<f4", "(2,)", 8), "train.data.inputs: read npy: .*/x.npy: not a .npy file"},
	} {
		dir := t.TempDir()
		for name, text := range map[string][]byte{"x.npy": test.inputs, "y.npy": test.targets} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, warnings, err := (*Defaults)(nil).ParseWith("job.toml", dir, src, nil, FileRemarks(filepath.Join(dir, "bin")))
		got := lines(warnings)
		match := len(got) == 1 && test.want != "" && regexp.MustCompile(test.want).MatchString(got[0])
		if err != nil || !match && (test.want != "" || len(got) > 0) {
			t.Errorf("%v, %q, want %q", err, got, test.want)
		}
	}
}

func TestRowsBeyondTheDataAreRemarkedOn(t *testing.T) {
	dir := t.TempDir()
	header := []byte{0, 0, 8, 3}
	for _, n := range []uint32{100, 1, 1} {
		header = binary.BigEndian.AppendUint32(header, n)
	}
	if err := os.WriteFile(filepath.Join(dir, "images"), append(header, make([]byte, 100)...), 0o600); err != nil {
		t.Fatal(err)
	}
	place(t, dir, "labels")
	src := func(train, eval string) []byte {
		return []byte("name = \"x\"\n[train]\nmodel = { kind = \"mlp\", hidden = [4] }\n[train.data]\nkind = \"mnist\"\nimages = " +
			"\"images\"\nlabels = \"labels\"\n" +
			"train = \"" + train + "\"\neval = \"" + eval + "\"\n")
	}
	for ranges, want := range map[[2]string][]string{
		{"0:90", "90:100"}: nil,
		{"0:90", "90:101"}: {"job.toml:9:1: train.data.eval: range 90:101 goes beyond the data, which has 100 rows"},
		{"0:900", "900:901"}: {"job.toml:8:1: train.data.train: range 0:900 goes beyond the data, which has 100 rows",
			"job.toml:9:1: train.data.eval: range 900:901 goes beyond the data, which has 100 rows"},
	} {
		_, warnings, err := (*Defaults)(nil).ParseWith("job.toml", dir, src(ranges[0], ranges[1]), nil,
			FileRemarks(filepath.Join(dir, "bin")))
		if got := lines(warnings); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %q, want %q", ranges, err, got, want)
		}
	}
	// an unreadable file is reported as such, and only once
	if err := os.Remove(filepath.Join(dir, "images")); err != nil {
		t.Fatal(err)
	}
	_, warnings, err := (*Defaults)(nil).ParseWith("job.toml", dir, src("0:900", "900:901"), nil, (*Job).DataRemarks, FileRemarks(""))
	if got := lines(warnings); err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "job.toml:6:1: train.data.images: stat ") {
		t.Errorf("%v, %q", err, got)
	}
	// all missing files are named, each at its key
	if err := os.Remove(filepath.Join(dir, "labels")); err != nil {
		t.Fatal(err)
	}
	job, warnings, err := (*Defaults)(nil).ParseWith("job.toml", dir, src("0:90", "90:100"), nil, (*Job).DataRemarks)
	if got := lines(warnings); err != nil || len(got) != 2 || !strings.HasPrefix(got[1], "job.toml:7:1: train.data.labels: stat ") {
		t.Fatalf("%v, %q", err, got)
	}
	const both = "train.data.images: stat DIR/images: no such file or directory, train.data.labels: stat DIR/labels: no such file or " +
		"directory; correct the path in the job file (relative paths start at workdir, DIR)"
	if err := job.CheckFiles(); err == nil || err.Error() != strings.ReplaceAll(both, "DIR", dir) {
		t.Errorf("got %v, want %s", err, both)
	}
}

// TestMissingFilesOfASweepAreNamedOnce: elements share files, and a missing one is named once.
func TestMissingFilesOfASweepAreNamedOnce(t *testing.T) {
	dir := t.TempDir()
	src := "name = \"x\"\n[train]\nmodel = { kind = \"mlp\", hidden = [4] }\n[train.data]\nkind = \"csv\"\n" +
		"path = \"c.csv\"\ntrain = \"0:9\"\n[sweep]\nseed = [1, 2, 3]\n"
	_, warnings, err := (*Defaults)(nil).ParseWith("job.toml", dir, []byte(src), nil, (*Job).DataRemarks)
	if got := lines(warnings); err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "job.toml:6:1: train.data.path: stat ") {
		t.Errorf("%v, %q", err, got)
	}
}
