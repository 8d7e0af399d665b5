package jobfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/redact"
	"ddpbatch/internal/torchrun"
	"ddpbatch/internal/vfs"
)

// A Remark is a warning of one key, or a fault, that the job file alone does not show, but what is around it: files, the cluster.
type Remark struct {
	Key     string // dotted
	Message string // names the key
	IsFault bool   // the job cannot run
}

// ParseWith is Parse, with what remarks find among the warnings and faults, each where its key stands. Where the job has faults of its own
// they are not asked.
func (d *Defaults) ParseWith(name, dir string, src []byte, sets []string, remarks ...func(*Job) []Remark) (*Job, []Fault, error) {
	c := newChecker(name, src)
	c.defaults = d
	_, root := c.parse(dir, sets)
	warnings, err := c.found()
	if err != nil {
		return nil, warnings, err
	}
	c.job.defaults = d.Files()
	for _, find := range remarks {
		for _, r := range find(c.job) {
			key := toml.Key(strings.Split(r.Key, "."))
			found := finding{root.at(key), key, r.Message}
			if r.IsFault {
				c.faults = append(c.faults, found)
			} else {
				c.warnings = append(c.warnings, found)
			}
		}
	}
	warnings, err = c.found()
	return c.job, warnings, err
}

// notHereNote ends what is said of files that are not there.
const notHereNote = "as seen from this machine: correct the path, unless the nodes see it"

// FileRemarks tells of files and folders that a job names and this machine does not see, and of ranges beyond the rows of data that it
// does see. Programs are looked for in the folders of searchPath, a PATH.
func FileRemarks(searchPath string) func(*Job) []Remark {
	return func(j *Job) []Remark { return j.fileRemarks(searchPath) }
}

func (j *Job) fileRemarks(searchPath string) []Remark {
	var all []Remark
	add := func(key, format string, args ...any) {
		all = append(all, Remark{Key: key, Message: key + ": " + fmt.Sprintf(format, args...)})
	}
	isThere := vfs.IsDir(j.WorkDir)
	if !isThere {
		add("workdir", "the folder %s is not there, %s", shownPath(j.WorkDir), notHereNote)
	}
	if script := j.venvScript(); script != "" && !isFile(script) && (isThere || filepath.IsAbs(j.Setup.Venv)) {
		add("setup.venv", "there is no %s, %s", shownPath(script), notHereNote)
	}
	all = append(all, j.containerRemarks(searchPath)...)
	if program := j.missingProgram(searchPath); program != "" && (isThere || filepath.IsAbs(program)) {
		add("launch.command", "there is no program %s, %s", shownPath(program), notHereNote)
	}
	if script := j.missingScript(); script != "" && (isThere || filepath.IsAbs(script)) {
		add("launch.command", "the script %s is not there, %s", shownPath(script), notHereNote)
	}
	return append(all, j.rowRemarks()...)
}

// DataRemarks tells of what [Job.CheckFiles] refuses.
func (j *Job) DataRemarks() []Remark {
	err := j.CheckFiles()
	if err == nil {
		return nil
	}
	key, _, _ := strings.Cut(err.Error(), ":")
	return []Remark{{Key: key, Message: err.Error(), IsFault: key == "container.image"}}
}

// venvScript is the file by which the venv is activated; empty: there is no venv, or only the nodes know where.
func (j *Job) venvScript() string {
	if j.Setup.Venv == "" || strings.ContainsAny(j.Setup.Venv, "$`") {
		return ""
	}
	venv := j.Setup.Venv
	if strings.HasPrefix(venv, "~") {
		path, err := absolute(venv, j.WorkDir)
		if err != nil {
			return ""
		}
		venv = path
	}
	return filepath.Join(j.resolve(venv), "bin", "activate")
}

// missingProgram is the program of the command where it is certain that it is not here: with modules, conda or lines of the user's own only
// the nodes know what the PATH is.
func (j *Job) missingProgram(searchPath string) string {
	if j.Builtin() || j.Container.Runtime != "" { // an image has programs of its own
		return ""
	}
	program := j.Launch.Command[0]
	if strings.Contains(program, "/") {
		if isFile(j.resolve(program)) {
			return ""
		}
		return program
	}
	s := j.Setup
	if _, path := j.Env["PATH"]; path || len(s.Modules) > 0 || s.Conda != "" || len(s.Script) > 0 || program == "" {
		return ""
	}
	if script := j.venvScript(); script != "" && isFile(filepath.Join(filepath.Dir(script), program)) {
		return ""
	}
	if onPath(program, searchPath) {
		return ""
	}
	return program
}

// onPath reports whether a program is in one of the folders of a PATH.
func onPath(program, searchPath string) bool {
	return slices.ContainsFunc(filepath.SplitList(searchPath), func(dir string) bool {
		return filepath.IsAbs(dir) && isFile(filepath.Join(dir, program))
	})
}

// missingScript is the script of Python's or a shell's that the command runs, where that is not here. What a container or another wrapper
// runs may be in its own file system.
func (j *Job) missingScript() string {
	if j.Builtin() || j.Container.Runtime != "" {
		return ""
	}
	command := j.Launch.Command
	script := ""
	switch {
	case slices.Contains([]string{"sh", "bash"}, filepath.Base(command[0])):
		if len(command) > 1 && strings.HasSuffix(command[1], ".sh") {
			script = command[1]
		}
	case torchrun.IsInterpreter(command[0]) || torchrun.FindLauncher(command[:1]) != "":
		isEnd := func(word string) bool { return word == "-c" || word == "-m" || strings.HasSuffix(word, ".py") }
		if at := slices.IndexFunc(command, isEnd); at > 0 && strings.HasSuffix(command[at], ".py") {
			script = command[at]
		}
	}
	if script == "" || strings.HasPrefix(script, "-") || isFile(j.resolve(script)) {
		return ""
	}
	return script
}

// rowRemarks tells of ranges of rows beyond those of the data, as far as its headers say how many there are. Of a sweep that is the first
// element's.
func (j *Job) rowRemarks() (all []Remark) {
	if !j.Builtin() || j.Train.Data.Train == "" && j.Train.Data.Eval == "" {
		return nil
	}
	if joined, ok := j.Train.CheckRows(j.WorkDir).(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			key, _, _ := strings.Cut(err.Error(), ":")
			all = append(all, Remark{Key: "train." + key, Message: "train." + err.Error()})
		}
	}
	return all
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeType == 0
}

// shownPath quotes a path for a message, in full but for what is longer than a screen is wide.
func shownPath(path string) string { return redact.Quoted(path, 200) }
