package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"ddpbatch/internal/vfs"
)

// Names inside a run directory.
const (
	specName     = "spec.json"
	jobFileName  = "job.toml"
	scriptName   = "script.sh"
	jobIDName    = "jobid"
	binaryName   = "bin/ddpbatch"
	attemptsName = "attempts"
	logsName     = "logs"
	verdictName  = "verdict.json"
	ledgerName   = "ledger.jsonl"
	metricsName  = "metrics.jsonl"
	tasksName    = "tasks"
)

// CheckpointsName is the directory of checkpoints in a run directory.
const CheckpointsName = "checkpoints"

// runName matches the name of a run directory. It is compiled when first needed: counted repetitions take long to compile, and most
// processes never need it.
var runName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}-[0-9]{8}-[0-9]{6}-[0-9a-f]{8}$`)
})

// Names of the copy of the user's code, if the run has one, of its description, and of its differences from the commit.
const (
	CodeName       = "code"
	CodeRecordName = "code.json"
	CodeDiffName   = "code.diff"
)

// Dir is a run directory, or the directory of one array element in it (see [Dir.Task]). Its methods are safe for concurrent use, and
// several processes may have it open.
type Dir struct {
	path string // absolute
	root *Dir   // the run that an array element belongs to; nil for a run

	files vfs.FS // nil means the operating system's

	mu   sync.Mutex
	spec Spec // only in the root
}

// Open opens the run directory at path: the directory itself, a symbolic link to it, or tasks/<index> inside one. The error is
// fs.ErrNotExist if it does not exist.
func Open(path string) (*Dir, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, fmt.Errorf("open run directory: %w", err)
	}
	if root, index, ok := taskPath(path); ok {
		d, err := Open(root)
		if err != nil {
			return nil, err
		}
		return d.openTask(index)
	}
	spec, err := readSpec(filepath.Join(path, specName))
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%s is a file, not a run: name the run by its job id or its directory", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open run directory %s: %w", path, err)
	}
	return &Dir{path: path, spec: spec}, nil
}

// resolve makes path absolute, and follows it if it is a symbolic link itself. Links in its parents stay: on a cluster they hide the names
// of file servers, which may differ between nodes.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	const hops = 8
	for range hops {
		info, err := os.Lstat(path)
		if err != nil {
			return "", err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			return path, nil
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		if err := checkLink(info, path, target); err != nil {
			return "", err
		}
		path = target
	}
	return "", fmt.Errorf("%s: more than %d symbolic links", path, hops)
}

// taskPath reports whether path is <root>/tasks/<index>.
func taskPath(path string) (root string, index int, ok bool) {
	tasks := filepath.Dir(path)
	index, err := strconv.Atoi(filepath.Base(path))
	ok = err == nil && index >= 0 && filepath.Base(tasks) == tasksName
	return filepath.Dir(tasks), index, ok
}

// Task opens the directory of the array element with the given index (SLURM_ARRAY_TASK_ID), and creates it if it does not exist. An element
// has its own job ID, attempts, ledger, metrics and checkpoints. Spec, job file, script and program are those of the run.
func (d *Dir) Task(index int) (*Dir, error) {
	t, err := d.task(index)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{attemptsName, CheckpointsName} {
		if err := os.MkdirAll(filepath.Join(t.path, name), 0o700); err != nil {
			return nil, fmt.Errorf("open array element %d: %w", index, err)
		}
	}
	return t, nil
}

// openTask is Task for an element that exists already, since reading a run must not create anything in it.
func (d *Dir) openTask(index int) (*Dir, error) {
	t, err := d.task(index)
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NoElementError{Run: d, Index: index}
	}
	if err != nil {
		return nil, fmt.Errorf("open array element %d: %w", index, err)
	}
	return t, nil
}

func (d *Dir) task(index int) (*Dir, error) {
	if d.root != nil {
		return nil, errors.New("open array element: an array element has no elements of its own")
	}
	if index < 0 {
		return nil, fmt.Errorf("open array element: index %d is negative", index)
	}
	return &Dir{path: filepath.Join(d.path, tasksName, strconv.Itoa(index)), root: d}, nil
}

// Whole returns the run that d is, or that it is an element of.
func (d *Dir) Whole() *Dir {
	if d.root != nil {
		return d.root
	}
	return d
}

// Path returns the directory's absolute path.
func (d *Dir) Path() string { return d.path }

// Spec returns what submit decided, as it was when the directory was opened or WriteSpec was last called.
func (d *Dir) Spec() Spec {
	r := d.Whole()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spec
}

// WriteSpec replaces spec.json durably.
func (d *Dir) WriteSpec(s Spec) error {
	r := d.Whole()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := writeSpec(r.SpecPath(), s); err != nil {
		return fmt.Errorf("write the run's spec: %w", err)
	}
	r.spec = s
	return nil
}

// WriteScript replaces the batch script.
func (d *Dir) WriteScript(text string) error {
	if err := writeBytes(d.ScriptPath(), 0o700, []byte(text)); err != nil {
		return fmt.Errorf("write the batch script: %w", err)
	}
	return nil
}

// Binary returns the path of the run's own copy of ddpbatch.
func (d *Dir) Binary() string { return filepath.Join(d.Whole().path, binaryName) }

// JobFile returns the text of the run's job.toml. The error is fs.ErrNotExist if there is none, as for a run of a command.
func (d *Dir) JobFile() ([]byte, error) {
	data, err := readFile(d.JobFilePath(), maxForeign)
	if err != nil {
		return nil, fmt.Errorf("read the run's job file: %w", err)
	}
	return data, nil
}

// ScriptPath returns the path of the batch script.
func (d *Dir) ScriptPath() string { return filepath.Join(d.Whole().path, scriptName) }

// SpecPath returns the path of spec.json.
func (d *Dir) SpecPath() string { return filepath.Join(d.Whole().path, specName) }

// JobFilePath returns the path of the copy of job.toml.
func (d *Dir) JobFilePath() string { return filepath.Join(d.Whole().path, jobFileName) }

// MetricsPath returns the file to which rank 0 appends its metrics, one JSON object per line.
func (d *Dir) MetricsPath() string { return filepath.Join(d.path, metricsName) }

// CheckpointsPath returns the directory of the checkpoints.
func (d *Dir) CheckpointsPath() string { return filepath.Join(d.path, CheckpointsName) }

// TensorBoardPath returns the directory of TensorBoard's event files, which exist if the job asks for them.
func (d *Dir) TensorBoardPath() string { return filepath.Join(d.path, "tensorboard") }

// Index returns the index of the array element whose directory d is. ok is false for a run.
func (d *Dir) Index() (index int, ok bool) {
	if d.root == nil {
		return 0, false
	}
	_, index, ok = taskPath(d.path)
	return index, ok
}

// Array returns the run that an element belongs to, or nil for a run.
func (d *Dir) Array() *Dir { return d.root }

// Elements returns the array's elements that have a directory, sorted by index. It returns none for a run that is not an array.
func (d *Dir) Elements() ([]*Dir, error) {
	entries, err := os.ReadDir(filepath.Join(d.path, tasksName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the array's elements: %w", err)
	}
	var indices []int
	for _, entry := range entries {
		if index, err := strconv.Atoi(entry.Name()); err == nil && index >= 0 && strconv.Itoa(index) == entry.Name() && entry.IsDir() {
			indices = append(indices, index)
		}
	}
	slices.Sort(indices)
	all := make([]*Dir, len(indices))
	for i, index := range indices {
		if all[i], err = d.task(index); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// AnewFrom returns the attempt from which on d, a run or an element, ignores earlier checkpoints if its job says checkpoint.resume =
// "never". 0 means the first.
func (d *Dir) AnewFrom() int {
	if index, ok := d.Index(); ok {
		return d.Spec().AnewElements[index]
	}
	return d.Spec().Anew
}

// NoElementError means that the named element of an array has no directory. It may not have begun.
type NoElementError struct {
	Run   *Dir
	Index int
}

func (e *NoElementError) Error() string {
	return fmt.Sprintf("array element %d does not exist in %s", e.Index, e.Run.path)
}

func (e *NoElementError) Is(target error) bool {
	return target == ErrNotFound || target == fs.ErrNotExist
}

// ElementLogs returns the jobs of elements, such as 12_3, that have left a log in a run's directory (see [Dir.SlurmLogPath]). An element
// whose batch script failed early has a log but no directory.
func (d *Dir) ElementLogs() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("look for the logs of the array's elements: %w", err)
	}
	var ids []string
	for _, entry := range entries {
		id, isLog := strings.CutPrefix(strings.TrimSuffix(entry.Name(), ".log"), "slurm-")
		if isLog && strings.Contains(id, "_") && jobID().MatchString(id) && filepath.Base(d.SlurmLogPath(id)) == entry.Name() {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// IsRun reports whether path looks like a run directory, or like a link to one. It does not read the contents.
func IsRun(path string) bool {
	for _, name := range []string{specName, binaryName} {
		if info, err := os.Stat(filepath.Join(path, name)); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}
