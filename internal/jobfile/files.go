package jobfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/container"
	words "ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
)

// ExportPath returns the path to which the job writes its final model, or "" if it does not.
func (j *Job) ExportPath() string {
	if j.Train.Export == "" {
		return ""
	}
	return j.resolve(j.Train.Export)
}

// resolve returns a path of the job as the trainer opens it (trainer.Config.Files). It does not clean an absolute path: behind a symbolic
// link, only the file system knows where .. leads.
func (j *Job) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(j.WorkDir, path)
}

// hostPath returns a path of the trainer as this machine knows it, and reports whether a mount gives it another path in the container.
func (j *Job) hostPath(path string) (string, bool) {
	if j.Container.Runtime == "" {
		return j.resolve(path), false
	}
	return j.Container.HostPath(j.resolve(path), container.Same(j.WorkDir, j.RunDir, j.Checkpoint.Local))
}

// maxMissing bounds the number of missing files that an error names, because each element of a sweep may lack others.
const maxMissing = 10

// CheckFiles returns an error that names the files that the job needs and that do not exist, in any element of a sweep: the data of the
// built-in trainer, and a container's image.
func (j *Job) CheckFiles() error {
	missing, err := j.missingFiles()
	if err != nil || len(missing) == 0 {
		return err
	}
	var messages, hints []string
	for _, m := range missing {
		messages = append(messages, m.Message)
		if !slices.Contains(hints, m.Hint) {
			hints = append(hints, m.Hint)
		}
	}
	return &usage.Error{Message: words.Few(messages, maxMissing), Hint: strings.Join(hints, "; ")}
}

// missingFiles returns an error for each file that CheckFiles refuses. The message begins with the key and a colon.
func (j *Job) missingFiles() ([]*usage.Error, error) {
	if j.Sweep == nil {
		return j.missingOwnFiles(), nil
	}
	var all []*usage.Error
	seen := map[string]bool{}
	for index := range j.Sweep.Len() {
		element, err := j.Element(index)
		if err != nil {
			return nil, err
		}
		for _, missing := range element.missingOwnFiles() {
			if !seen[missing.Message] {
				seen[missing.Message] = true
				all = append(all, missing)
			}
		}
	}
	return all, nil
}

func (j *Job) missingOwnFiles() (all []*usage.Error) {
	if err := j.checkImage(); err != nil {
		all = append(all, err)
	}
	if !j.Builtin() {
		return all
	}
	for _, f := range j.Train.Files() {
		path, byMount := j.hostPath(f.Path)
		if _, err := os.Stat(path); err != nil {
			hint := "correct the path in the job file (relative paths start at workdir, " + j.WorkDir + ")"
			if byMount {
				hint = "correct the path or container.mounts, by which it is a path of the container"
			}
			all = append(all, &usage.Error{Message: fmt.Sprintf("train.%s: %v", f.Key, err), Hint: hint})
		}
	}
	file := j.ExportPath()
	if file != "" {
		file, _ = j.hostPath(file)
	}
	if folder, _ := filepath.Split(file); file != "" && !vfs.IsDir(folder) { // filepath.Dir would clean the path, see resolve
		all = append(all, &usage.Error{
			Message: fmt.Sprintf("train.export: the folder of %s does not exist", file),
			Hint:    "make it first, or name another",
		})
	}
	return all
}

// resolvePaths makes the job's own paths absolute: "~/" is the user's home folder, and relative
// paths start at the job file's folder.
func (c *checker) resolvePaths(root *position, dir string) {
	for _, p := range []struct {
		name string
		path *string
	}{{"workdir", &c.job.WorkDir}, {"run_dir", &c.job.RunDir}, {"script_template", &c.job.ScriptTemplate},
		{"container.image", c.job.imagePath()}} {
		if p.path == nil || *p.path == "" || !c.hasNoFault(p.name) {
			continue
		}
		abs, err := absolute(*p.path, dir)
		if err != nil {
			key := toml.Key(strings.Split(p.name, "."))
			c.fault(root.at(key), key, "%s: %s", p.name, err)
		}
		*p.path = abs
	}
}

var (
	errOtherHome = errors.New(`only "~/", the home folder of the user who submits, is supported: write the full path`)
	errRelative  = errors.New("the absolute path of the job file's folder is unknown")
	errPathText  = errors.New("the path must be one line of UTF-8 text")
)

func absolute(path, dir string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		if rest != "" && rest[0] != '/' {
			return "", errOtherHome
		}
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		path = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	switch {
	case !filepath.IsAbs(path):
		return "", errRelative
	case !isLine(path) || !utf8.ValidString(path):
		return "", errPathText
	default:
		return filepath.Clean(path), nil
	}
}
