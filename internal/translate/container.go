package translate

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/container"
	"ddpbatch/slurm"
)

// A contained is what the launch line says of the container that ranks run in.
type contained struct {
	runtime, image string
	mounts, args   []string
	hasHome        bool // the home of the user is seen in it
}

// apptainerSwitches are flags of "apptainer exec" without a value, and whether [container] has them without being told.
var apptainerSwitches = map[string]bool{
	"--nv": true, "--rocm": true, "--cleanenv": true, "-e": true, "--no-home": true,
	"--contain": false, "-c": false, "--containall": false, "-C": false, "--writable-tmpfs": false, "--fakeroot": false, "-f": false,
	"--nvccli": false, "--no-mount-home": false, "--unsquash": false,
}

// isApptainer reports whether a command is "apptainer exec", or singularity's.
func isApptainer(command []string) bool {
	return slices.Contains([]string{"apptainer", "singularity"}, path.Base(command[0])) && len(command) > 1 && command[1] == "exec"
}

// peelApptainer takes "apptainer exec" and its flags off. It is false, and the command stays as it is, where a flag has no place in
// [container] or only the shell knows the image or a mount.
func (t *translation) peelApptainer(l *launch, command []string) (rest []string, ok bool) {
	c := &contained{runtime: "apptainer", hasHome: true}
	rest = command[2:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		word := rest[0]
		name, value, hasValue := strings.Cut(word, "=")
		rest = rest[1:]
		if isDefault, known := apptainerSwitches[word]; known {
			if !isDefault {
				c.args = append(c.args, word)
			}
			c.hasHome = c.hasHome && !slices.Contains([]string{"--no-home", "--contain", "-c", "--containall", "-C"}, word)
			continue
		}
		if name != "-B" && name != "--bind" {
			return nil, false
		}
		if !hasValue {
			if len(rest) == 0 {
				return nil, false
			}
			value, rest = rest[0], rest[1:]
		}
		for mount := range strings.SplitSeq(value, ",") {
			if !isMount(mount) {
				return nil, false
			}
			c.mounts = append(c.mounts, mount)
		}
	}
	if len(rest) < 2 || !isConstant(rest[0]) {
		return nil, false
	}
	c.image = rest[0]
	l.container = c
	return rest[1:], true
}

// isMount reports whether a text is an item of container.mounts.
func isMount(text string) bool {
	_, err := container.ParseMount(text)
	return err == nil && isConstant(text) && isLine(text)
}

// isPyxis reports whether an option is one that Pyxis adds to srun and sbatch, and not Slurm's own for OCI bundles.
func isPyxis(g slurm.Given) bool {
	own := []string{"container", "container-id", "container-type"}
	return strings.Contains(g.Name, "container") && !slices.Contains(own, g.Name)
}

// pyxis reads options of Pyxis, and returns those that have no place in [container].
func (t *translation) pyxis(options []slurm.Given) (left []string) {
	c := &contained{runtime: "enroot"}
	for _, g := range options {
		switch {
		case g.Name == "container-image" && isConstant(g.Value):
			c.image = g.Value
		case g.Name == "container-mounts":
			for mount := range strings.SplitSeq(g.Value, ",") {
				if isMount(mount) {
					c.mounts = append(c.mounts, mount)
				} else {
					left = append(left, quoted(t.readable(mount)))
				}
			}
		default:
			left = append(left, quoted(t.readable(g.Word())))
		}
	}
	if c.image != "" {
		t.line.container = c
	}
	return left
}

// bindVariables are by which apptainer is told of mounts, too.
var bindVariables = []string{"APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH"}

// containerKeys writes [container]. base is where sbatch would be called.
func (t *translation) containerKeys(base string) {
	c := t.line.container
	if c == nil {
		return
	}
	s := &t.container
	s.put("runtime", c.runtime, "")
	image := c.image
	switch isFile := t.isImageFile(); {
	case isFile && !filepath.IsAbs(image):
		image = path.Join(base, image)
	case !isFile && c.runtime == "enroot":
		name := strings.TrimPrefix(image, "docker://")
		image = strings.NewReplacer("/", "+", ":", "+", "#", "+").Replace(name) + ".sqsh"
		s.note(t.line.line, "fetch the image once, by hand: enroot import -o %s %s", image, slurm.ShellQuote("docker://"+name))
	}
	s.put("image", image, "")
	if c.runtime == "apptainer" {
		t.takeBindVariables(c)
	}
	if len(c.mounts) > 0 {
		s.put("mounts", c.mounts, "the working directory and the run directory are there without being named")
	}
	if len(c.args) > 0 {
		s.put("args", c.args, "")
	}
	if c.runtime == "enroot" {
		s.note(t.line.line, "Pyxis has srun put its tasks into the container; here the agent is outside, and starts each rank by enroot")
		return
	}
	s.note(t.line.line, "the agent is outside of the container, and starts each rank by apptainer")
	if c.hasHome {
		s.note(t.line.line, "apptainer shows your home in the container, and here it does not: write into mounts what of it is needed")
	}
}

// isImageFile reports whether the image is a file: to Pyxis what begins like a path, and to apptainer what is no URI.
func (t *translation) isImageFile() bool {
	c := t.line.container
	if c.runtime == "apptainer" {
		return !strings.Contains(c.image, "://")
	}
	return strings.HasPrefix(c.image, "/") || strings.HasPrefix(c.image, "./") || strings.HasPrefix(c.image, "../")
}

// takeBindVariables has mounts of variables as keys: as variables of the ranks they would be set in the container alone.
func (t *translation) takeBindVariables(c *contained) {
	t.env.keys = slices.DeleteFunc(t.env.keys, func(k keyLine) bool {
		value, isText := k.value.(string)
		if !isText || !slices.Contains(bindVariables, k.name) {
			return false
		}
		for mount := range strings.SplitSeq(value, ",") {
			if !isMount(mount) {
				t.container.note(0, "not translated: %s of %s: see container.mounts", quoted(mount), k.name)
				continue
			}
			c.mounts = append(c.mounts, mount)
		}
		return true
	})
}
