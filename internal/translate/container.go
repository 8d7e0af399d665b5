package translate

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/container"
	"ddpbatch/slurm"
)

// A contained describes the container that the launch line uses for the ranks.
type contained struct {
	runtime, image string
	mounts, args   []string
	hasHome        bool // the user's home directory is visible in it
}

// apptainerSwitches are flags of "apptainer exec" without a value. The value is true if [container] always does the same.
var apptainerSwitches = map[string]bool{
	"--nv": true, "--rocm": true, "--cleanenv": true, "-e": true, "--no-home": true,
	"--contain": false, "-c": false, "--containall": false, "-C": false, "--writable-tmpfs": false, "--fakeroot": false, "-f": false,
	"--nvccli": false, "--no-mount-home": false, "--unsquash": false,
}

// isApptainer reports whether a command is "apptainer exec", or singularity's.
func isApptainer(command []string) bool {
	return slices.Contains([]string{"apptainer", "singularity"}, path.Base(command[0])) && len(command) > 1 && command[1] == "exec"
}

// peelApptainer removes "apptainer exec" and its flags. It returns false and leaves the command unchanged if [container] cannot express a
// flag, or if only the shell knows the image or a mount.
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

// isMount reports whether a text is a valid item of container.mounts.
func isMount(text string) bool {
	_, err := container.ParseMount(text)
	return err == nil && isConstant(text) && isLine(text)
}

// isPyxis reports whether an option is one that Pyxis adds to srun and sbatch. Slurm has its own options for OCI bundles.
func isPyxis(g slurm.Given) bool {
	own := []string{"container", "container-id", "container-type"}
	return strings.Contains(g.Name, "container") && !slices.Contains(own, g.Name)
}

// pyxis reads the options of Pyxis, and returns those that [container] cannot express.
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

// bindVariables are variables that name further mounts for apptainer.
var bindVariables = []string{"APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH"}

// containerKeys writes [container]. base is the directory where sbatch would be called.
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
		s.put("mounts", c.mounts, "the working directory and the run directory are always mounted")
	}
	if len(c.args) > 0 {
		s.put("args", c.args, "")
	}
	if c.runtime == "enroot" {
		s.note(t.line.line, "with Pyxis, srun puts its tasks into the container; here the agent is outside, and starts each rank by enroot")
		return
	}
	s.note(t.line.line, "the agent is outside the container, and starts each rank by apptainer")
	if c.hasHome {
		s.note(t.line.line, "apptainer mounts your home directory, but ddpbatch does not: add what is needed of it to mounts")
	}
}

// isImageFile reports whether the image is a file. For Pyxis a file begins like a path, and for apptainer a file is anything that is not a
// URI.
func (t *translation) isImageFile() bool {
	c := t.line.container
	if c.runtime == "apptainer" {
		return !strings.Contains(c.image, "://")
	}
	return strings.HasPrefix(c.image, "/") || strings.HasPrefix(c.image, "./") || strings.HasPrefix(c.image, "../")
}

// takeBindVariables turns mounts in variables into keys, because as variables of the ranks they would only be set inside the container.
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
