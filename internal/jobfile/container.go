package jobfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/container"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
)

// runtime reads the name of a container runtime. For some other names it says what to write instead.
func runtime(j *Job, key toml.Key, v any) error {
	switch v {
	case "pyxis":
		return fmt.Errorf(`%s = "pyxis": with Pyxis srun puts whole tasks into containers, the agent included; `+
			`write "enroot", which Pyxis uses`, key)
	case "singularity":
		return fmt.Errorf(`%s = "singularity": write "apptainer", the new name of Singularity`, key)
	}
	return oneOf(func(j *Job) *string { return &j.Container.Runtime }, container.Runtimes()...)(j, key, v)
}

// imagePath returns a pointer to the image if it is a file or a folder, and nil if it is a name or there is none.
func (j *Job) imagePath() *string {
	if j.Container.Runtime == "" || !j.Container.IsPath() {
		return nil
	}
	return &j.Container.Image
}

// checkContainer checks [container], and what cannot be combined with it. If only files of defaults have the table, and they do not name an
// image, the job does not use a container.
func (c *checker) checkContainer(values map[string]any, root *position) {
	table, isTable := values["container"].(map[string]any)
	key := toml.Key{"container"}
	if !isTable || c.isPart || !c.hasNoFault(key.String()) {
		return
	}
	k, j := &c.job.Container, c.job
	if k.Runtime == "" || k.Image == "" {
		if !c.ownTable(table, root.at(key)) {
			*k = container.Config{}
			return
		}
		for _, name := range []string{"runtime", "image"} {
			if table[name] == nil {
				c.missing(root.at(key), key, name)
			}
		}
		return
	}
	c.addErrors(root, "container.", k.Validate())
	if k.ShmSize > 0 && j.MaxNproc() != 1 && c.hasNoFault("container.shm_size", "launch.nproc_per_node") {
		c.warn(root, toml.Key{"container", "shm_size"}, "container.shm_size gives each rank a /dev/shm of its own, so the ranks of a "+
			"node do not share memory, and NCCL cannot use it: leave it out to use the node's /dev/shm")
	}
	if key := (toml.Key{"container", "image"}); k.Runtime != container.Apptainer && strings.HasSuffix(k.Image, ".sif") &&
		c.hasNoFault(key.String()) {
		c.warn(root, key, "container.image: a .sif file is an image of apptainer, which %s does not run: write "+
			"container.runtime = \"apptainer\"", k.Runtime)
	}
	c.warnOfHostSetup(root)
}

// checkBinds refuses paths, which are absolute by now, that cannot be bound into a container.
func (c *checker) checkBinds(root *position) {
	j := c.job
	if j.Container.Runtime == "" {
		return
	}
	paths := []struct{ key, path string }{{"workdir", j.WorkDir}, {"run_dir", j.RunDir}, {"checkpoint.local", j.Checkpoint.Local}}
	if image := j.imagePath(); image != nil {
		paths = append(paths, struct{ key, path string }{"container.image", *image})
	}
	for _, p := range paths {
		if p.path == "" || !c.hasNoFault(p.key) {
			continue
		}
		key := toml.Key(strings.Split(p.key, "."))
		if err := container.CheckPath(p.path); err != nil {
			c.fault(root.at(key), key, "%s cannot be bound into a container: %v", p.key, err)
		} else if filepath.Clean(p.path) == "/" {
			c.fault(root.at(key), key, "%s = \"/\" would hide the whole image: write a folder below it", p.key)
		}
	}
}

// ownTable reports whether the job itself, or an override, has a key of a table.
func (c *checker) ownTable(table map[string]any, at *position) bool {
	for name := range table {
		if at.below(name).file == 0 {
			return true
		}
	}
	return false
}

// warnOfHostSetup warns of keys of [setup] that set up programs of the host, which an image does not have.
func (c *checker) warnOfHostSetup(root *position) {
	s := c.job.Setup
	for _, p := range []struct {
		name string
		set  bool
	}{{"modules", len(s.Modules) > 0}, {"venv", s.Venv != ""}, {"conda", s.Conda != ""}} {
		key := toml.Key{"setup", p.name}
		if p.set && c.hasNoFault(key.String()) {
			c.warn(root, key, "%s sets up programs of the host, but the ranks run in a container, which has its own: they "+
				"see only what container.mounts and setup.env bring in (a module that provides the runtime itself is fine)", key)
		}
	}
}

// checkImage returns an error if the image is a file or a folder and does not exist.
func (j *Job) checkImage() *usage.Error {
	path := j.imagePath()
	if path == nil {
		return nil
	}
	if _, err := os.Stat(*path); err != nil {
		return &usage.Error{
			Message: fmt.Sprintf("container.image: %v", err),
			Hint:    "correct the path in the job file (relative paths start at its folder), or make the image first",
		}
	}
	return nil
}

// containerRemarks reports a runtime that is not installed here, an image that is a name though a folder has that name, and mounts that do
// not exist here.
func (j *Job) containerRemarks(searchPath string) (all []Remark) {
	k := j.Container
	if k.Runtime == "" {
		return nil
	}
	add := func(key, format string, args ...any) {
		all = append(all, Remark{Key: key, Message: key + ": " + fmt.Sprintf(format, args...)})
	}
	if len(j.Setup.Modules) == 0 && len(j.Setup.Script) == 0 && !onPath(k.Program(), searchPath) {
		add("container.runtime", "the program %s is not on this machine's PATH: the nodes must have it", k.Program())
	}
	if k.Runtime == container.Podman && !k.IsPath() && vfs.IsDir(filepath.Join(j.dir, k.Image)) {
		add("container.image", "podman takes %s for the name of an image, but there is a folder of this name: write %s for the folder",
			shownPath(k.Image), shownPath("./"+k.Image))
	}
	for _, text := range k.Mounts {
		if mount, err := container.ParseMount(text); err == nil {
			if _, err := os.Stat(mount.Source); err != nil {
				add("container.mounts", "%s does not exist %s", shownPath(mount.Source), notHereNote)
			}
		}
	}
	return all
}
