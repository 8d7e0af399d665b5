package jobfile

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"

	"ddpbatch/slurm"
)

// jobRows are the keys outside all tables, [setup] and [container].
func jobRows() []row {
	return []row{
		{key: "schema", read: schemaVersion},
		{key: "name", read: text("1 to 64 of the characters A-Z a-z 0-9 . _ -, the first no . or -", jobName, func(j *Job) *string { return &j.Name }), need: true},
		{key: "workdir", read: line(func(j *Job) *string { return &j.WorkDir })},
		{key: "run_dir", read: line(func(j *Job) *string { return &j.RunDir })},

		{key: "setup.modules", read: list(0, "one line of text", isLine, func(j *Job) *[]string { return &j.Setup.Modules })},
		{key: "setup.venv", read: line(func(j *Job) *string { return &j.Setup.Venv })},
		{key: "setup.conda", read: line(func(j *Job) *string { return &j.Setup.Conda })},
		{key: "setup.script", read: list(0, "text without NUL", noNUL, func(j *Job) *[]string { return &j.Setup.Script })},
		{key: "setup.env.*", read: variable},

		{key: "container.runtime", read: oneOf(unused[string], "apptainer", "pyxis", "docker")},
		{key: "container.image", read: line(unused[string])},
		{key: "container.mounts", read: list(0, "one line of text", isLine, unused[[]string])},
	}
}

// slurmRows are the keys of [slurm]: what sbatch knows, and ours.
func slurmRows() []row {
	rows := []row{
		{key: "slurm", advise: notHere},
		{key: "slurm.extra", read: extra},
		{key: "slurm.skip", read: list(0, `the name of an option of sbatch, such as "--mem"`, isOptionName, func(j *Job) *[]string { return &j.Slurm.Skip })},
	}
	for _, key := range slurm.OptionKeys() {
		rows = append(rows, row{key: "slurm." + key, read: option})
	}
	return append(rows, row{key: "slurm.nodes", read: nodes})
}

func schemaVersion(j *Job, key toml.Key, v any) error {
	if v != int64(Schema) {
		return fmt.Errorf("this ddpbatch reads schema %d, not %s", Schema, describe(v))
	}
	return nil
}

// jobNamePattern is compiled when it is first needed: counted repetitions take long, and most processes never ask.
var jobNamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`) })

func jobName(s string) bool { return jobNamePattern().MatchString(s) }

func noNUL(s string) bool { return !strings.Contains(s, "\x00") }

var variablePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// variable reads one environment variable of the workers.
func variable(j *Job, key toml.Key, v any) error {
	name := key[len(key)-1]
	if !variablePattern().MatchString(name) {
		return fmt.Errorf("%s is no name for an environment variable: use letters, digits and _", short(name))
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
	o, err := slurm.ParseOption(key[len(key)-1], v)
	if err == nil && o.Name != "" {
		j.Slurm.List = append(j.Slurm.List, o)
	}
	return err
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

// nodes reads how many nodes there are. Slurm would also take a range, but a job's ranks
// are numbered for one world, which its restarts must meet again.
func nodes(j *Job, key toml.Key, v any) error {
	if s, ok := v.(string); ok && strings.Contains(s, "-") {
		return fmt.Errorf("%s must be one whole number: ddpbatch does not take Slurm's ranges of nodes, as a job's ranks must be the same after every restart", key)
	}
	if n, ok := v.(int64); !ok || n < 1 || n > most {
		return mustBe(key, "a whole number of at least 1", v)
	}
	return option(j, key, v)
}
