package jobfile

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/redact"
	"ddpbatch/internal/torchrun"
	"ddpbatch/internal/vfs"
)

// A Remark is a warning or a fault of a key that depends on more than the job file: on files, or on the cluster.
type Remark struct {
	Key     string // dotted
	Message string // names the key
	IsFault bool   // the job cannot run
}

// ParseWith is like Parse, and also adds the remarks to the warnings and faults, each at the position of its key. It does not call remarks
// if the job has faults.
func (d *Defaults) ParseWith(name, dir string, src []byte, sets []string, remarks ...func(*Job) []Remark) (*Job, []Fault, error) {
	c := newChecker(name, src)
	c.defaults = d
	_, root := c.parse(dir, sets)
	warnings, err := c.found()
	if err != nil {
		return nil, warnings, err
	}
	c.job.defaults, c.job.dir = d.Files(), dir
	defer func() { c.job.dir = "" }()
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

// notHereNote ends remarks about files that do not exist.
const notHereNote = "on this machine: correct the path, unless the nodes see it"

// FileRemarks returns a function that reports files and folders that a job names and that do not exist on this machine, and ranges beyond
// the rows of data files. It looks for programs in the folders of searchPath, a PATH.
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
		add("workdir", "the folder %s does not exist %s", shownPath(j.WorkDir), notHereNote)
	}
	if script := j.venvScript(); script != "" && !isFile(script) && (isThere || filepath.IsAbs(j.Setup.Venv)) {
		add("setup.venv", "%s does not exist %s", shownPath(script), notHereNote)
	}
	all = append(all, j.containerRemarks(searchPath)...)
	if program := j.missingProgram(searchPath); program != "" && (isThere || filepath.IsAbs(program)) {
		add("launch.command", "the program %s was not found %s", shownPath(program), notHereNote)
	}
	if program := j.unexecutable(); program != "" {
		add("launch.command", "the file %s is not executable: chmod +x it, or begin the command with the program that runs it, "+
			"such as python3", shownPath(program))
	}
	if script := j.missingScript(); script != "" && (isThere || filepath.IsAbs(script)) {
		add("launch.command", "the script %s does not exist %s", shownPath(script), notHereNote)
	}
	return append(all, j.rowRemarks()...)
}

// inText matches a blank that stands for the value of a flag or of a variable in a text of several words.
var inText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[\s"'])(?:--?[\w.-]+[ =]|\w+=)` + regexp.QuoteMeta(redact.Blank) + `(?:$|[\s"';])`)
})

// BlankRemarks reports values that stand for secrets which "init --from" did not copy, or another command did not print.
func (j *Job) BlankRemarks() (all []Remark) {
	const instead = "is " + redact.Blank + ", which stands for a secret that was not copied: keep it in a file that only you can read, " +
		`have setup.script read it ("export NAME=$(cat FILE)"), and `
	for i, word := range j.Launch.Command {
		isValue := word == redact.Blank && i > 0 && strings.HasPrefix(j.Launch.Command[i-1], "-")
		if isValue || inText().MatchString(word) {
			const key = "launch.command"
			message := fmt.Sprintf(`%s: item %d %swrite command = ["bash", "-c", "exec ... \"$NAME\""]`, key, i+1, instead)
			all = append(all, Remark{key, message, true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.Env)) {
		if j.Env[name] == redact.Blank {
			key := "setup.env." + name
			all = append(all, Remark{key, key + " " + instead + "delete this value", true})
		}
	}
	return all
}

// DataRemarks warns of each file for which [Job.CheckFiles] returns an error. They are not faults, as the nodes may see other files.
func (j *Job) DataRemarks() (all []Remark) {
	missing, err := j.missingFiles()
	if err != nil {
		return []Remark{{Key: "sweep", Message: err.Error()}}
	}
	for _, m := range missing[:min(len(missing), maxFaults)] {
		key, _, _ := strings.Cut(m.Message, ":")
		all = append(all, Remark{Key: key, Message: m.Error()})
	}
	return all
}

// venvScript returns the file that activates the virtual environment, or "" if the job has none. The batch script quotes the path, so
// variables in it are not expanded here either.
func (j *Job) venvScript() string {
	if j.Setup.Venv == "" {
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
	return strings.TrimRight(j.environmentPath(venv), "/") + "/bin/activate"
}

// missingProgram returns the program of the command if it certainly does not exist here. With modules, conda or the user's own script
// lines, the PATH is known only on the nodes.
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
	if script := j.venvScript(); script != "" && isFile(strings.TrimSuffix(script, "activate")+program) {
		return ""
	}
	if onPath(program, searchPath) {
		return ""
	}
	return program
}

// unexecutable returns the program of the command if it is a path to a file that nobody may execute.
func (j *Job) unexecutable() string {
	if j.Builtin() || j.Container.Runtime != "" || !strings.Contains(j.Launch.Command[0], "/") {
		return ""
	}
	info, err := os.Stat(j.resolve(j.Launch.Command[0]))
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 != 0 {
		return ""
	}
	return j.Launch.Command[0]
}

// onPath reports whether a program is in one of the folders of a PATH.
func onPath(program, searchPath string) bool {
	return slices.ContainsFunc(filepath.SplitList(searchPath), func(dir string) bool {
		return filepath.IsAbs(dir) && isFile(filepath.Join(dir, program))
	})
}

// missingScript returns the Python or shell script that the command runs, if it does not exist here. A script in a container, or one that
// another wrapper runs, may be in another file system.
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

// rowRemarks reports what the headers of the data's files say against the job: ranges beyond the rows, and .npy files of another type or
// shape. It also reports a file of train.init that cannot fit the model. For a sweep it checks the first element.
func (j *Job) rowRemarks() (all []Remark) {
	if !j.Builtin() {
		return nil
	}
	at := func(path string) string { path, _ = j.hostPath(path); return path }
	if joined, ok := j.Train.CheckRows(at).(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			key, _, _ := strings.Cut(err.Error(), ":")
			all = append(all, Remark{Key: "train." + key, Message: "train." + err.Error()})
		}
	}
	if err := j.Train.CheckInit(at); err != nil {
		all = append(all, Remark{Key: "train.init", Message: "train." + err.Error()})
	}
	return all
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeType == 0
}

// shownPath quotes a path for a message, and shortens it if it is longer than 200 bytes.
func shownPath(path string) string { return redact.Quoted(path, 200) }
