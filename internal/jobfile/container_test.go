package jobfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
)

func TestContainerIsReadAndChecked(t *testing.T) {
	const head = "name = \"x\"\n[launch]\ncommand = [\"true\"]\n[container]\n" // line 5 is the first of the table
	for _, tc := range []struct {
		name, table string
		faults      []string
		warnings    []string
	}{
		{"all of it", "runtime = \"podman\"\nimage = \"a:1\"\nmounts = [\"/a:/b:ro\"]\nshm_size = \"1G\"\ngpus = " +
			"\"none\"\nargs = [\"--rm\"]",
			nil, nil},
		{"no image", "runtime = \"podman\"", []string{"job.toml:4:2: container needs the key image"}, nil},
		{"pyxis", "runtime = \"pyxis\"\nimage = \"a\"",
			[]string{`job.toml:5:1: container.runtime = "pyxis": with Pyxis srun puts whole tasks into ` +
				`containers, the agent included; write "enroot", which Pyxis uses`}, nil},
		{"singularity", "runtime = \"singularity\"\nimage = \"a\"",
			[]string{`job.toml:5:1: container.runtime = "singularity": write "apptainer", the new name of Singularity`}, nil},
		{"a mount that is none", "runtime = \"enroot\"\nimage = \"a\"\nmounts = [\"b\"]",
			[]string{`job.toml:7:1: container.mounts: item 1: "b": the path "b" is not absolute: both paths of a mount begin with /`}, nil},
		{"a /dev/shm that cannot be", "runtime = \"enroot\"\nimage = \"a\"\nshm_size = \"1G\"",
			[]string{"job.toml:7:1: container.shm_size: enroot shares the node's /dev/shm with its containers: remove shm_size"}, nil},
		{"an image of apptainer", "runtime = \"docker\"\nimage = \"torch.sif\"", nil,
			[]string{`job.toml:6:1: container.image: a .sif file is an image of apptainer, which docker does not run: write ` +
				`container.runtime = "apptainer"`}},
		{"an image of apptainer as a path", "runtime = \"podman\"\nimage = \"./torch.sif\"", nil,
			[]string{`job.toml:6:1: container.image: a .sif file is an image of apptainer, which podman does not run: write ` +
				`container.runtime = "apptainer"`}},
		{"its own image", "runtime = \"apptainer\"\nimage = \"torch.sif\"", nil, nil},
		{"modules", "runtime = \"podman\"\nimage = \"a\"\n[setup]\nmodules = [\"cuda\"]", nil,
			[]string{"job.toml:8:1: setup.modules sets up programs of the host, but the ranks run in a container, which has its own: " +
				"they see only what container.mounts and setup.env bring in (a module that provides the runtime itself is fine)"}},
	} {
		_, warnings, err := Parse("job.toml", "/proj", []byte(head+tc.table), nil)
		var faults Faults
		if err != nil {
			faults = err.(Faults)
		}
		if got := lines(faults); !slices.Equal(got, tc.faults) {
			t.Errorf("%s: faults %q, want %q", tc.name, got, tc.faults)
		}
		if got := lines(warnings); !slices.Equal(got, tc.warnings) {
			t.Errorf("%s: warnings %q, want %q", tc.name, got, tc.warnings)
		}
	}
}

// The path of an image is relative to the folder of the job file. A missing image is only a warning, because the nodes may see an image
// that this machine does not see. An image that is a name is not looked for.
func TestMissingImageIsRemarkedOn(t *testing.T) {
	dir := t.TempDir()
	text := []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n[container]\nruntime = \"charliecloud\"\nimage = \"image\"\n")
	job, warnings, err := (*Defaults)(nil).ParseWith("job.toml", dir, text, nil, (*Job).DataRemarks)
	want := "job.toml:6:1: container.image: stat " + filepath.Join(dir, "image") + ": no such file or directory; "
	if got := lines(warnings); err != nil || len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Fatalf("%v, %q, want %s", err, got, want)
	}
	if err := job.CheckFiles(); err == nil {
		t.Error("the image does not exist, but CheckFiles returns no error")
	}
	if err := os.Mkdir(filepath.Join(dir, "image"), 0o700); err != nil {
		t.Fatal(err)
	}
	job, warnings, err = (*Defaults)(nil).ParseWith("job.toml", dir, text, nil, (*Job).DataRemarks)
	if err != nil || len(warnings) > 0 || job.Container.Image != filepath.Join(dir, "image") || job.CheckFiles() != nil {
		t.Errorf("%v: %+v", err, job)
	}
	job, _, err = (*Defaults)(nil).ParseWith("job.toml", dir, text, []string{"container.runtime=podman", "container.image=image"},
		(*Job).DataRemarks)
	if err != nil || job.Container.Image != "image" {
		t.Errorf("%v: %+v", err, job)
	}
}

// The warnings name a folder that podman takes for a name, and a mount that does not exist on this machine.
func TestContainerIsComparedWithThisMachine(t *testing.T) {
	dir := t.TempDir()
	place(t, dir, "bin/podman")
	if err := os.Mkdir(filepath.Join(dir, "root"), 0o700); err != nil {
		t.Fatal(err)
	}
	src := "name = \"x\"\n[launch]\ncommand = [\"true\"]\n[container]\nruntime = \"podman\"\nimage = \"root\"\n" +
		"mounts = [\"" + dir + ":/in\", \"" + dir + "/no:/no\"]\n"
	_, warnings, err := (*Defaults)(nil).ParseWith("job.toml", dir, []byte(src), nil, FileRemarks(filepath.Join(dir, "bin")))
	want := []string{
		`job.toml:6:1: container.image: podman takes "root" for the name of an image, but there is a folder of this name: ` +
			`write "./root" for the folder`,
		`job.toml:7:1: container.mounts: "` + dir + `/no" does not exist on this machine: correct the path, unless the nodes see it`,
	}
	if got := lines(warnings); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %q, want %q", err, got, want)
	}
	src = strings.NewReplacer(`"root"`, `"./root"`, "/no:", ":").Replace(src)
	_, warnings, err = (*Defaults)(nil).ParseWith("job.toml", dir, []byte(src), nil, FileRemarks(filepath.Join(dir, "bin")))
	if len(warnings) > 0 || err != nil {
		t.Errorf("%v, %q", err, lines(warnings))
	}
}

// Files of the built-in trainer are looked for in the folders on the host that the mounts bind. This holds for their existence and for
// their rows.
func TestDataUnderAMountAreFoundOnTheHost(t *testing.T) {
	dir := t.TempDir()
	src := "name = \"x\"\n[container]\nruntime = \"podman\"\nimage = \"a\"\nmounts = [\"" + dir + ":/in\"]\n" +
		"[train]\nmodel = { kind = \"mlp\", hidden = [4] }\nexport = \"/in/m.safetensors\"\n[train.data]\nkind = \"mnist\"\n" +
		"images = \"/in/images\"\nlabels = \"/in/labels\"\ntrain = \"0:9\"\n"
	check := func() []string {
		job, warnings, err := (*Defaults)(nil).ParseWith("job.toml", "/proj", []byte(src), nil, (*Job).DataRemarks)
		if err != nil || (job.CheckFiles() == nil) != (len(warnings) == 0) {
			t.Fatalf("%v, %q", err, lines(warnings))
		}
		for _, r := range job.rowRemarks() {
			warnings = append(warnings, Fault{Line: 13, Message: r.Message})
		}
		return lines(warnings)
	}
	missing := "job.toml:11:1: train.data.images: stat " + dir + "/images: no such file or directory; " +
		"correct the path or container.mounts, by which it is a path of the container"
	if got := check(); len(got) != 2 || got[0] != missing {
		t.Errorf("%q, want %q", got, missing)
	}
	images := append([]byte{0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1}, 1, 2, 3, 4) // four pictures of one pixel
	for name, content := range map[string][]byte{"images": images, "labels": {0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3, 4}} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := check(); len(got) != 1 || !strings.Contains(got[0], "goes beyond the data, which has 4 rows") {
		t.Errorf("%q, want a word about the rows", got)
	}
}

// A site's defaults may set the runtime for its jobs. The runtime alone does not give a job a container.
func TestRuntimeOfTheSiteIsNotAContainer(t *testing.T) {
	d, err := ParseDefaults(rundir.DefaultsFile{Name: "/etc/ddpbatch.toml", Text: "[container]\nruntime = \"apptainer\"\n", Site: true})
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]string{"": "", "[container]\nimage = \"a.sif\"": "/proj/a.sif"} {
		job, _, err := d.Parse("job.toml", "/proj", []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"+table), nil)
		if err != nil || job.Container.Image != want || (job.Container.Runtime == "") != (want == "") {
			t.Errorf("%q: %v, %+v", table, err, job.Container)
		}
	}
}

// The paths that are bound are the absolute ones.
func TestPathsThatNoContainerSeesAreRefused(t *testing.T) {
	const text = "schema = 1\nname = \"x\"\n%s\n[launch]\ncommand = [\"true\"]\n[container]\nruntime = \"podman\"\nimage = \"a\"\n"
	for _, tc := range []struct{ dir, key, says string }{
		{"/jobs/run,1", "", "workdir cannot be bound into a container"},
		{"/jobs", `workdir = "/"`, `workdir = "/" would hide the whole image`},
		{"/jobs", `checkpoint = { local = "/a:b" }`, "checkpoint.local cannot be bound into a container"},
	} {
		_, _, err := Parse("job.toml", tc.dir, []byte(strings.Replace(text, "%s", tc.key, 1)), nil)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s in %s: %v, want %q", tc.key, tc.dir, err, tc.says)
		}
	}
}

// If the image in the site's defaults is a name, it is not taken for a relative path.
func TestDefaultsMayNameAnImage(t *testing.T) {
	for text, fits := range map[string]bool{
		"[container]\nruntime = \"podman\"\nimage = \"pytorch:2\"\n":                true,
		"[container]\nruntime = \"apptainer\"\nimage = \"docker://pytorch:2\"\n":    true,
		"[container]\nruntime = \"charliecloud\"\nimage = \"images/pytorch\"\n":     false,
		"[container]\nruntime = \"charliecloud\"\nimage = \"/images/pytorch.sq\"\n": true,
	} {
		_, err := ParseDefaults(rundir.DefaultsFile{Name: "/etc/ddpbatch.toml", Text: text})
		if (err == nil) != fits {
			t.Errorf("%q: %v", text, err)
		}
	}
}
