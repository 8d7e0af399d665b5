package jobfile

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/redact"
	"ddpbatch/internal/torchrun"
)

// warnOfMistakes warns of what is allowed but is usually a mistake. The job runs all the same.
func (c *checker) warnOfMistakes(values map[string]any, root *position) {
	c.warnOfTrain(values, root)
	c.warnOfLauncher(values, root)
	c.warnOfTimeouts(values, root)
	c.warnOfOverlap(root)
	c.warnOfSecrets(root)
	c.warnOfVariables(root)
}

// warnOfTrain warns of [train] beside a command, which does not read it. It ignores keys that "ckpt prune" uses in any job.
func (c *checker) warnOfTrain(values map[string]any, root *position) {
	train, _ := values["train"].(map[string]any)
	if c.job.Builtin() || len(train) == 0 || !c.hasNoFault("train", "launch.command") {
		return
	}
	if _, evaluates := train["evaluate"]; evaluates && len(train) == 1 {
		return
	}
	c.warn(root, toml.Key{"train"}, "[train] has no effect with launch.command, which is what the ranks run: leave one of them out")
}

// warnOfLauncher warns of a launcher in launch.command: each rank would start ranks of its own.
func (c *checker) warnOfLauncher(values map[string]any, root *position) {
	key := toml.Key{"launch", "command"}
	launcher := torchrun.FindLauncher(c.job.Launch.Command)
	if launcher == "" || !c.hasNoFault(key.String(), "launch.nproc_per_node") {
		return
	}
	instead := ""
	if !torchrun.IsStarter(launcher) { // each node may start one: the ranks of all of them are one world
		if counts := c.job.Launch.NprocPerNode.Counts; given(values, "launch", "nproc_per_node") && len(counts) == 1 && counts[0] == 1 {
			return // the job explicitly asks for one launcher on each node
		}
		instead = "; to start one launcher on each node, write launch.nproc_per_node = 1"
	}
	c.warn(root, key, "%s: each rank would start further ranks with %s, but ddpbatch starts the ranks: write only the program "+
		`(["python", "train.py"]), and the ranks per node into launch.nproc_per_node; "ddpbatch init --from" translates a whole command%s`,
		key, launcher, instead)
}

// warnOfTimeouts warns of time-outs in the wrong order: the one that gives the less useful message would come first.
func (c *checker) warnOfTimeouts(values map[string]any, root *position) {
	hang, timeout, grace := toml.Key{"launch", "hang"}, toml.Key{"mpi", "timeout"}, toml.Key{"launch", "grace"}
	if !c.hasNoFault(hang.String(), timeout.String(), grace.String()) {
		return
	}
	l, m := c.job.Launch, c.job.MPI
	hangGiven, timeoutGiven, graceGiven := given(values, hang...), given(values, timeout...), given(values, grace...)
	usesGroup := c.job.Builtin() || timeoutGiven // otherwise the command sets the time-out of its process group itself
	if l.Hang > 0 && l.Hang <= m.Timeout && usesGroup && (hangGiven || timeoutGiven) {
		key := hang
		if !hangGiven {
			key = timeout
		}
		c.warn(root, key, `launch.hang = "%v" is not longer than mpi.timeout = "%v": a rank that waits counts as hung `+
			"before it can say for which rank it waits; raise launch.hang, or lower mpi.timeout", l.Hang, m.Timeout)
	}
	if m.Timeout <= l.Grace && usesGroup && (timeoutGiven || graceGiven) {
		key := grace
		if !graceGiven {
			key = timeout
		}
		c.warn(root, key, `mpi.timeout = "%v" is not longer than launch.grace = "%v": ranks that wait for one that `+
			"still saves give up before it is killed; raise mpi.timeout, or lower launch.grace", m.Timeout, l.Grace)
	}
}

// warnOfOverlap warns of rows that are both trained on and evaluated: the result then says little about other data.
func (c *checker) warnOfOverlap(root *position) {
	key := toml.Key{"train", "data", "eval"}
	if !c.job.Builtin() || !c.hasNoFault(key.String(), "train.data.train") {
		return
	}
	if rows, overlap := c.job.Train.Data.Overlap(); overlap {
		c.warn(root, key, "%s: the rows %v are also trained on (train.data.train), so the evaluation says little about new data", key, rows)
	}
}

// warnOfSecrets warns of secrets in the job file: others may read it, the script that Slurm keeps, and command lines.
func (c *checker) warnOfSecrets(root *position) {
	const instead = `keep it in a file that only you can read, and have setup.script read it: "export NAME=$(cat FILE)"`
	script := toml.Key{"setup", "script"}
	for i, line := range c.job.Setup.Script {
		if name := redact.FindWritten(line); name != "" && c.hasNoFault(script.String()) {
			c.warn(root, script, "item %d of %s sets %s, which looks like a secret and becomes part of the batch script, "+
				"which Slurm keeps: %s", i+1, script, name, instead)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.job.Env)) {
		if key := (toml.Key{"setup", "env", name}); redact.Written(name, c.job.Env[name]) && c.hasNoFault(key.String()) {
			c.warn(root, key, "%s looks like a secret, but all who can read the job file can read it: %s", key, instead)
		}
	}
	command := toml.Key{"launch", "command"}
	if !c.hasNoFault(command.String()) {
		return
	}
	words := c.job.Launch.Command
	for i, word := range words {
		name := redact.FindWritten(word)
		if name == "" && i+1 < len(words) && redact.FollowsFlag(word, words[i+1]) {
			name = word
		}
		if name != "" {
			c.warn(root, command,
				"item %d of %s sets %s, which looks like a secret, but all users of a node can read command lines: %s",
				i+1, command, name, instead)
		}
	}
}

// reference matches a variable of the environment. The names of those are in upper case; agents replace ${local_rank} in a command.
var reference = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$(?:[A-Z_][A-Z0-9_]*\b|\{[A-Z_][A-Z0-9_]*\})`) })

// warnOfVariables warns of $NAME in texts that no shell reads: values for the ranks, and arguments of a Python or shell script. Other
// programs may expand their arguments themselves, and so may a program in a word, as in "bash -c".
func (c *checker) warnOfVariables(root *position) {
	for _, name := range slices.Sorted(maps.Keys(c.job.Env)) {
		key := toml.Key{"setup", "env", name}
		if found := reference().FindString(c.job.Env[name]); found != "" && !redact.Named(name) && c.hasNoFault(key.String()) {
			c.warn(root, key, `%s: %s is not expanded, so ranks get this text: set the variable in setup.script, "export %s=..."`,
				key, found, name)
		}
	}
	key, command := toml.Key{"launch", "command"}, c.job.Launch.Command
	isProgram := func(word string) bool {
		return len(word) > 1 && word[0] == '-' && word[1] != '-' && strings.HasSuffix(word, "c")
	}
	if c.job.Builtin() || !c.hasNoFault(key.String()) || slices.ContainsFunc(command, isProgram) ||
		!torchrun.IsInterpreter(command[0]) && !slices.Contains([]string{"sh", "bash"}, filepath.Base(command[0])) {
		return
	}
	for i, word := range redact.Words(command) { // a "$" may be part of a secret
		if found := reference().FindString(word); found != "" {
			c.warn(root, key, `item %d of %s: %s is not expanded, so ranks get this text: write command = ["bash", "-c", "exec ... %s"]`,
				i+1, key, found, found)
		}
	}
}

// given reports whether the tables have a key.
func given(values map[string]any, key ...string) bool {
	for _, name := range key[:len(key)-1] {
		values, _ = values[name].(map[string]any)
	}
	return values[key[len(key)-1]] != nil
}
