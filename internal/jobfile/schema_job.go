package jobfile

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/container"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/snapshot"
	words "ddpbatch/internal/text"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// jobRows are the keys outside all tables, [code], [setup], [sweep] (whose other keys are those of the job: takeSweep) and [container].
func jobRows() []keyRow {
	return []keyRow{
		{key: "schema", read: taking("whole number", schemaVersion)},
		{key: "name", read: text("1 to 64 of the characters A-Z a-z 0-9 . _ -, not beginning with . or -", rundir.IsJobName,
			func(j *Job) *string { return &j.Name }), need: true},
		{key: "workdir", read: line(func(j *Job) *string { return &j.WorkDir })},
		{key: "run_dir", read: line(func(j *Job) *string { return &j.RunDir })},
		{key: "script_template", read: line(func(j *Job) *string { return &j.ScriptTemplate })},

		{key: "code.snapshot", read: oneOf(func(j *Job) *string { return &j.Code.Snapshot }, snapshot.None, snapshot.Git, snapshot.Copy),
			need: true},
		{key: "code.include", read: list(0, "a pattern on one line", isLine, func(j *Job) *[]string { return &j.Code.Include })},
		{key: "code.exclude", read: list(0, "a pattern on one line", isLine, func(j *Job) *[]string { return &j.Code.Exclude })},
		{key: "code.max_mb", read: wholeNumber(1, func(j *Job) *int { return &j.Code.MaxMB })},
		{key: "code.max_files", read: wholeNumber(1, func(j *Job) *int { return &j.Code.MaxFiles })},

		{key: "setup.modules", read: list(0, "one line of text", isLine, func(j *Job) *[]string { return &j.Setup.Modules })},
		{key: "setup.venv", read: line(func(j *Job) *string { return &j.Setup.Venv })},
		{key: "setup.conda", read: line(func(j *Job) *string { return &j.Setup.Conda })},
		{key: "setup.script", read: list(0, "text without NUL", noNUL, func(j *Job) *[]string { return &j.Setup.Script })},
		{key: "setup.env.*", read: taking("text", variable)},

		{key: "sweep.mode", read: oneOf(func(j *Job) *string { return &sweepOf(j).Mode }, product, zip)},
		{key: "sweep.parallel", read: wholeNumber(1, func(j *Job) *int { return &sweepOf(j).Parallel })},

		{key: "container.runtime", read: runtime},
		{key: "container.image", read: line(func(j *Job) *string { return &j.Container.Image })},
		{key: "container.mounts", read: list(0, "one line of text", isLine, func(j *Job) *[]string { return &j.Container.Mounts })},
		{key: "container.shm_size", read: size(func(j *Job) *int64 { return &j.Container.ShmSize })},
		{key: "container.gpus", read: oneOf(func(j *Job) *string { return &j.Container.GPUs }, container.GPUs()...)},
		{key: "container.args", read: list(0, "text without NUL", noNUL, func(j *Job) *[]string { return &j.Container.Args })},
	}
}

// slurmRows are the keys of [slurm]: what sbatch knows, and ours.
func slurmRows() []keyRow {
	rows := []keyRow{
		{key: "slurm", advise: notHere},
		{key: "slurm.extra", read: taking("list of texts", extra)},
		{key: "slurm.skip", read: list(0, `the name of an option of sbatch, such as "--mem"`, isOptionName,
			func(j *Job) *[]string { return &j.Slurm.Skip })},
	}
	for _, key := range slurm.OptionKeys() {
		rows = append(rows, keyRow{key: "slurm." + key, read: option})
	}
	return append(rows,
		keyRow{key: "slurm.nodes", read: taking("whole number from 1, or range", nodes)},
		keyRow{key: "slurm.chain", read: taking(fmt.Sprintf("whole number from 1 to %d", maxChain), chain)},
	)
}

// launchRows are the keys of [launch], [mpi] and [checkpoint].
func launchRows() []keyRow {
	return []keyRow{
		{key: "launch.nproc_per_node", read: taking(`whole number from 1, list of them, "gpu", "cpu" or "auto"`, nproc)},
		{key: "launch.command", read: list(1, "text without NUL", noNUL, func(j *Job) *[]string { return &j.Launch.Command })},
		{key: "launch.check", read: commands(func(j *Job) *[][]string { return &j.Launch.Check })},
		{key: "launch.mode", read: oneOf(func(j *Job) *string { return &j.Launch.Mode }, "agent", "task")},
		{key: "launch.max_restarts", read: wholeNumber(0, func(j *Job) *int { return &j.Launch.MaxRestarts })},
		{key: "launch.min_nodes", read: wholeNumber(1, func(j *Job) *int { return &j.Launch.MinNodes })},
		{key: "launch.interface", read: line(func(j *Job) *string { return &j.Launch.Interface })},
		{key: "launch.ports", read: line(func(j *Job) *string { return &j.Launch.Ports })},
		{key: "launch.warn_signal", read: oneOf(func(j *Job) *string { return &j.Launch.WarnSignal }, "USR1", "USR2",
			"HUP", "INT", "TERM")},
		{key: "launch.grace", read: duration(func(j *Job) *time.Duration { return &j.Launch.Grace })},
		{key: "launch.hang", read: durationOrOff(func(j *Job) *time.Duration { return &j.Launch.Hang })},
		{key: "launch.prefix", read: text("one line of text", isSafe, func(j *Job) *string { return &j.Launch.Prefix })},
		{key: "launch.gpus", read: oneOf(func(j *Job) *string { return &j.Launch.GPUs }, "auto", "all", "one")},
		{key: "launch.torch_store", read: boolean(func(j *Job) *bool { j.Launch.TorchStore = new(bool); return j.Launch.TorchStore })},
		{key: "launch.on_end", read: list(0, "text without NUL", noNUL, func(j *Job) *[]string { return &j.Launch.OnEnd })},
		{key: "launch.metrics_dir", read: taking("absolute path", text(`an absolute path, or "" for none`, isAbsoluteOrNone,
			func(j *Job) *string { return &j.Launch.MetricsDir }))},
		{key: "launch.metrics_listen", read: taking("port, or address with port",
			value("a port, or an address with one in quotes", listenAt, func(j *Job) *string { return &j.Launch.MetricsListen }))},
		{key: "launch.numa", read: oneOf(func(j *Job) *string { return &j.Launch.NUMA }, "node", "socket", "exclusive", "core-complex")},

		{key: "mpi.transport", read: oneOf(func(j *Job) *string { return &j.MPI.Transport }, "auto", "shm", "tcp", "ucx")},
		{key: "mpi.algorithm", read: line(func(j *Job) *string { return &j.MPI.Algorithm })},
		{key: "mpi.deterministic", read: boolean(func(j *Job) *bool { return &j.MPI.Deterministic })},
		{key: "mpi.encrypt", read: boolean(func(j *Job) *bool { return &j.MPI.Encrypt })},
		{key: "mpi.timeout", read: duration(func(j *Job) *time.Duration { return &j.MPI.Timeout })},

		{key: "checkpoint.every_steps", read: wholeNumber(0, func(j *Job) *int { return &j.Checkpoint.EverySteps })},
		{key: "checkpoint.keep_last", read: wholeNumber(2, func(j *Job) *int { return &j.Checkpoint.KeepLast })},
		{key: "checkpoint.keep_every", read: wholeNumber(1, func(j *Job) *int { return &j.Checkpoint.KeepEvery })},
		{key: "checkpoint.keep_within", read: duration(func(j *Job) *time.Duration { return &j.Checkpoint.KeepWithin })},
		{key: "checkpoint.keep_best", read: wholeNumber(1, func(j *Job) *int { return &j.Checkpoint.KeepBest })},
		{key: "checkpoint.codec", read: oneOf(func(j *Job) *string { return &j.Checkpoint.Codec }, "auto", "none", "zstd")},
		{key: "checkpoint.async", read: boolean(func(j *Job) *bool { return &j.Checkpoint.Async })},
		{key: "checkpoint.delta", read: wholeNumber(0, func(j *Job) *int { return &j.Checkpoint.Delta })},
		{key: "checkpoint.memory", read: size(func(j *Job) *int64 { return &j.Checkpoint.Memory })},
		{key: "checkpoint.local", read: taking("absolute path",
			text("an absolute path", isAbsolute, func(j *Job) *string { return &j.Checkpoint.Local }))},
		{key: "checkpoint.replicate", read: boolean(func(j *Job) *bool { return &j.Checkpoint.Replicate })},
		{key: "checkpoint.at_start", read: boolean(func(j *Job) *bool { return &j.Checkpoint.AtStart })},
		{key: "checkpoint.resume", read: oneOf(func(j *Job) *string { return &j.Checkpoint.Resume }, "auto", "never")},
	}
}

// requeueRows are the keys of [requeue].
func requeueRows() []keyRow {
	rows := []keyRow{
		{key: "requeue.on", read: taking("list of "+words.Choice(causeNames()), causes)},
		{key: "requeue.lead", read: duration(func(j *Job) *time.Duration { return &j.Requeue.Lead })},
		{key: "requeue.no_progress", read: wholeNumber(1, func(j *Job) *int { return &j.Requeue.NoProgress })},
	}
	for _, name := range causeNames() {
		rows = append(rows, keyRow{key: "requeue.max." + name, read: taking("whole number from 0", budget)})
	}
	return rows
}

func schemaVersion(j *Job, key toml.Key, v any) error {
	if v != int64(Schema) {
		return fmt.Errorf("this ddpbatch reads schema %d, not %s", Schema, describe(v))
	}
	return nil
}

func noNUL(s string) bool { return !strings.Contains(s, "\x00") }

var variablePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// variable reads one environment variable of the workers.
func variable(j *Job, key toml.Key, v any) error {
	name := key[len(key)-1]
	if !variablePattern().MatchString(name) {
		return fmt.Errorf("%s is not a name for an environment variable: use letters, digits and _", short(name))
	}
	value, ok := v.(string)
	if !ok || !noNUL(value) {
		return mustBe(key, "text without NUL, in quotes", v)
	}
	if j.Env == nil {
		j.Env = make(map[string]string)
	}
	j.Env[name] = value
	return nil
}

var optionNamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(--?)?[a-zA-Z][a-zA-Z0-9-]*$`) })

func isOptionName(s string) bool { return optionNamePattern().MatchString(s) }

// notHere says why a key that slurmRows lacks does not belong in [slurm]. Where sbatch has no
// such option either, the error matches slurm.ErrUnknownOption.
func notHere(key string) error {
	_, err := slurm.ParseOption(key, "")
	return err
}

// option reads one option of sbatch. A flag that is false asks for nothing.
func option(j *Job, key toml.Key, v any) error {
	if q, asked := v.(*question); asked {
		q.words, q.takes = slurm.OptionWords(key[len(key)-1]), slurm.OptionTakes(key[len(key)-1])
		return nil
	}
	o, err := parseOption(key, v)
	if err == nil && o.Name != "" {
		j.Slurm.List = append(j.Slurm.List, o)
	}
	return err
}

// parseOption reads an option of sbatch. Its error names the key with its table.
func parseOption(key toml.Key, v any) (slurm.Option, error) {
	name := key[len(key)-1]
	o, err := slurm.ParseOption(name, v)
	if err != nil {
		err = fmt.Errorf("%s: %s", key, strings.TrimPrefix(err.Error(), "key "+name+": "))
	}
	return o, err
}

// extra reads the words that sbatch is given as they are.
func extra(j *Job, key toml.Key, v any) error {
	var words []string
	err := list(0, "text", noNUL, func(*Job) *[]string { return &words })(j, key, v)
	if err != nil {
		return err
	}
	for i, word := range words {
		if err := slurm.CheckExtra(word); err != nil {
			return fmt.Errorf("item %d of %s: %w", i+1, key, err)
		}
	}
	j.Slurm.Extra = words
	return nil
}

// nodes reads how many nodes there are, or from how many to how many there may be ("2-4").
func nodes(j *Job, key toml.Key, v any) error {
	if s, ok := v.(string); ok {
		if least, most, ok := nodeRange(s); ok {
			value := strconv.Itoa(least) + "-" + strconv.Itoa(most)
			if least == most {
				value = strconv.Itoa(most)
			}
			j.Slurm.List = append(j.Slurm.List, slurm.Option{Name: "nodes", Value: value})
			return nil
		}
	}
	if n, ok := v.(int64); !ok || n < 1 || n > maxWhole {
		return mustBe(key, `a whole number of at least 1, or a range such as "2-4"`, v)
	}
	return option(j, key, v)
}

// nodeRange reads a range of nodes as sbatch takes it: "2-4". One of sbatch's lists of counts is none.
func nodeRange(text string) (least, most int, ok bool) {
	from, to, isRange := strings.Cut(text, "-")
	a, err1 := strconv.ParseUint(from, 10, 31)
	b, err2 := strconv.ParseUint(to, 10, 31)
	ok = isRange && err1 == nil && err2 == nil && 1 <= a && a <= b && b <= maxWhole
	return int(a), int(b), ok
}

// maxChain is the longest chain: sbatch is called once for each link, and sites bound how many jobs a user may have in the queue.
const maxChain = 100

// chain reads how many jobs the work is spread over.
func chain(j *Job, key toml.Key, v any) error {
	n, ok := v.(int64)
	if !ok || n < 1 || n > maxChain {
		return mustBe(key, fmt.Sprintf("a whole number from 1 to %d", maxChain), v)
	}
	j.Chain = int(n)
	return nil
}

// isAbsolute reports whether s is a path that means the same in every folder.
func isAbsolute(s string) bool { return isLine(s) && filepath.IsAbs(s) }

// listenAt reads where to listen, as text, which launch.ParseListen looks into, or as a port.
func listenAt(v any) (at string, ok bool) {
	if port, isPort := v.(int64); isPort {
		return strconv.FormatInt(port, 10), true
	}
	at, ok = v.(string)
	return at, ok && isSafe(at)
}

// isAbsoluteOrNone is isAbsolute for what a job may do without, though files of defaults have it.
func isAbsoluteOrNone(s string) bool { return s == "" || isAbsolute(s) }

// nprocWords have each node work out how many ranks it runs.
func nprocWords() []string { return []string{"gpu", "cpu", "auto"} }

// nproc reads how many ranks each node runs.
func nproc(j *Job, key toml.Key, v any) error {
	to := &j.Launch.NprocPerNode
	switch v := v.(type) {
	case int64:
		if v >= 1 && v <= maxWhole {
			*to = launch.Nproc{Counts: []int{int(v)}}
			return nil
		}
	case string:
		if slices.Contains(nprocWords(), v) {
			*to = launch.Nproc{Word: v}
			return nil
		}
	case []any:
		numbers, err := counts(key, v)
		*to = launch.Nproc{Counts: numbers}
		return err
	case *question:
		v.words = nprocWords()
		return nil
	}
	return mustBe(key, `a whole number of at least 1, a list with one number per node, "gpu", "cpu" or "auto"`, v)
}

// causeNames are the causes that [requeue] may name.
func causeNames() []string {
	var names []string
	for _, c := range recovery.Causes() {
		names = append(names, string(c))
	}
	return names
}

// isCause reports whether a word is a cause that [requeue] may name.
func isCause(s string) bool { return slices.Contains(recovery.Causes(), recovery.Cause(s)) }

// causes reads after which causes the job is requeued.
func causes(j *Job, key toml.Key, v any) error {
	var names []string
	if err := list(0, words.Choice(causeNames()), isCause, func(*Job) *[]string { return &names })(j, key, v); err != nil {
		return err
	}
	j.Requeue.On = nil
	for _, name := range names {
		j.Requeue.On = append(j.Requeue.On, recovery.Cause(name))
	}
	return nil
}

// budget reads how many requeues one cause may take.
func budget(j *Job, key toml.Key, v any) error {
	var n int
	if err := wholeNumber(0, func(*Job) *int { return &n })(j, key, v); err != nil {
		return err
	}
	if j.Requeue.Max == nil {
		j.Requeue.Max = map[recovery.Cause]int{}
	}
	j.Requeue.Max[recovery.Cause(key[len(key)-1])] = n
	return nil
}
