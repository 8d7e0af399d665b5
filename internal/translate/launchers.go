package translate

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/torchrun"
)

// peelLauncher removes a launcher that starts ranks of a Python script. python is the interpreter that ran the launcher, or "" if the
// launcher is a program itself.
func (t *translation) peelLauncher(l *launch, launcher, python string, words []string) error {
	if l.isLauncher {
		return fmt.Errorf("%s is started by another launcher", launcher)
	}
	l.isLauncher = true
	switch path.Base(launcher) {
	case "torchrun", "torch.distributed.run":
		return t.peelTorchrun(l, python, words, false)
	case "torch.distributed.launch":
		return t.peelTorchrun(l, python, words, true)
	case "accelerate":
		if len(words) == 0 || words[0] != "launch" {
			return fmt.Errorf(`of accelerate only "accelerate launch" starts ranks`)
		}
		return t.peelFlags(l, accelerateFlags, "accelerate launch", python, words[1:])
	case "accelerate.commands.launch":
		return t.peelFlags(l, accelerateFlags, "accelerate launch", python, words)
	case "deepspeed", "deepspeed.launcher.runner":
		return t.peelFlags(l, deepspeedFlags, "deepspeed", python, words)
	}
	return fmt.Errorf("%s is a launcher that cannot be translated: write launch.command as one rank of it runs", launcher)
}

// derived are flags of torchrun whose values ddpbatch determines itself.
var derived = []string{"node-rank", "master-addr", "master-port", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "standalone",
	"local-addr", "use-env", "monitor-interval", "start-method", "event-log-handler", "logs-specs", "log-dir", "redirects", "tee"}

// peelTorchrun removes torchrun and its flags. passesRank means that it is torch.distributed.launch, which passes --local-rank to the
// script.
func (t *translation) peelTorchrun(l *launch, python string, words []string, passesRank bool) error {
	flags, command, dashed, err := torchrun.Split(words)
	if err != nil {
		return fmt.Errorf("torchrun: %w", err)
	}
	var kept, left, other []string // flags for Parse, flags that ddpbatch replaces, and flags without a key
	for _, f := range flags {
		f.Value = t.resolved(f.Value)
		flag := "--" + f.Name + "=" + f.Value
		switch {
		case torchrun.IsSwitch(f.Name) && f.Value == "1":
			flag = "--" + f.Name
		case torchrun.IsSwitch(f.Name):
			flag = "--" + f.Name + "=false"
		}
		switch f.Name {
		case "nproc-per-node":
			if l.perNode = t.countOf(l, f.Value); isConstant(f.Value) {
				kept = append(kept, flag)
			}
			continue
		case "nnodes":
			if isConstant(f.Value) {
				kept = append(kept, flag)
			}
			continue
		}
		passesRank = passesRank && f.Name != "use-env"
		switch {
		case slices.Contains(derived, f.Name):
			left = append(left, "--"+f.Name)
		case !isConstant(f.Value):
			other = append(other, flag)
		default:
			kept = append(kept, flag)
		}
	}
	if passesRank {
		kept = append(kept, "--pass-local-rank")
		l.notes = append(l.notes, "torch.distributed.launch passes --local-rank to the script, and so does launch.command, "+
			"with ${local_rank}; a script for PyTorch before 2.0 may need --local_rank")
	}
	if dashed {
		kept = append(kept, "--")
		if len(command) > 0 && strings.HasSuffix(command[0], ".py") { // torchrun's -- only ends its flags
			kept = kept[:len(kept)-1]
		}
	}
	if len(command) == 0 || command[0] == "" {
		return fmt.Errorf("torchrun: no script follows its flags")
	}
	options, _, err := torchrun.Parse(slices.Concat(kept, command), func(string) (string, bool) { return "", false })
	if err != nil {
		return fmt.Errorf("torchrun: %w", err)
	}
	if l.command, err = options.Argv(python); err != nil {
		return fmt.Errorf("torchrun: %w", err)
	}
	l.nodes, l.maxRestarts, l.numa = options.Nodes.Max, options.MaxRestarts, options.NUMA
	if options.Nodes.Min > 0 && options.Nodes.Min < options.Nodes.Max {
		l.minNodes = options.Nodes.Min
	}
	if options.Has("shutdown-timeout") && options.ShutdownTimeout > 0 {
		l.grace = options.ShutdownTimeout.String()
	}
	for _, f := range kept {
		name, _, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		if !slices.Contains([]string{"", "nproc-per-node", "nnodes", "max-restarts", "numa-binding",
			"shutdown-timeout", "module", "no-python",
			"run-path", "pass-local-rank"}, name) {
			other = append(other, f)
		}
	}
	if len(left) > 0 {
		l.notes = append(l.notes, "ddpbatch replaces these flags of torchrun: "+strings.Join(left, " "))
	}
	if len(other) > 0 {
		l.notes = append(l.notes, "not translated: torchrun's "+t.readable(strings.Join(other, " "))+": a job file has no key for it")
	}
	return nil
}

// countOf reads how many ranks a node runs.
func (t *translation) countOf(l *launch, value string) count {
	n, err := strconv.Atoi(value)
	text := t.readable(value)
	switch {
	case err == nil && n > 0:
		return count{n: n}
	case slices.Contains([]string{"gpu", "cpu", "auto"}, value):
		return count{word: value}
	case isConstant(value):
		return count{}
	case strings.Contains(text, "nvidia-smi"), strings.Contains(text, "SLURM_GPUS"), strings.Contains(text, "device_count"):
		return count{word: "gpu"}
	}
	l.notes = append(l.notes, "not translated: "+text+" ranks on each node: check launch.nproc_per_node")
	return count{}
}

// A launcherFlag says how one flag of a launcher is translated.
type launcherFlag struct {
	value  bool   // it has a value
	use    string // what peelFlags does with it; "": ddpbatch does the same; "-": a job file has no key for it
	prefix bool   // stands for all flags with this prefix
}

var accelerateFlags = flagTable(
	"num-processes total, num-machines nodes, max-restarts restarts, mixed-precision precision, num-cpu-threads-per-process threads",
	"machine-rank, main-process-ip, main-process-port, rdzv-backend, rdzv-conf, monitor-interval, tee, log-dir, role",
	"config-file -, gpu-ids -, dynamo-mode -, dynamo-backend -, gradient-accumulation-steps -, gradient-clipping -, zero-stage -",
	"fsdp-* -, deepspeed-* -, zero3-* -, offload-* -, megatron-* -, fp8-* -",
).switches(
	"module module, no-python no-python, same-network, multi-gpu, multi-cpu, quiet",
	"cpu -, use-cpu -, tpu -, use-deepspeed -, use-fsdp -, use-megatron-lm -, dynamo-use-fullgraph -, dynamo-use-dynamic -, debug -",
	"enable-cpu-affinity -, downcast-bf16 -",
)

var deepspeedFlags = flagTable(
	"num-gpus per-node, num-accelerators per-node, num-nodes nodes",
	"hostfile, master-addr, master-port, node-rank, launcher, launcher-args, ssh-port, enable-each-rank-log, user",
	"include -, exclude -, min-elastic-nodes -, max-elastic-nodes -, bind-core-list -, autotuning -",
).switches(
	"module module, no-python no-python, no-local-rank no-local-rank, no-ssh, no-ssh-check, force-multi, save-pid",
	"elastic-training -, bind-cores-to-rank -",
)

// launcherFlags are the flags of a launcher by their names, with dashes.
type launcherFlags map[string]launcherFlag

// flagTable returns a table of flags with values, each "name use", or "beginning* use".
func flagTable(lists ...string) launcherFlags { return launcherFlags{}.add(true, lists) }

// switches adds flags without values.
func (table launcherFlags) switches(lists ...string) launcherFlags { return table.add(false, lists) }

func (table launcherFlags) add(value bool, lists []string) launcherFlags {
	for one := range strings.SplitSeq(strings.Join(lists, ", "), ", ") {
		name, use, _ := strings.Cut(one, " ")
		beginning, prefix := strings.CutSuffix(name, "*")
		table[beginning] = launcherFlag{value: value, use: use, prefix: prefix}
	}
	return table
}

// find looks up a flag in either spelling.
func (table launcherFlags) find(name string) (launcherFlag, bool) {
	name = strings.ReplaceAll(name, "_", "-")
	if f, ok := table[name]; ok && !f.prefix {
		return f, true
	}
	for beginning, f := range table {
		if f.prefix && strings.HasPrefix(name, beginning) {
			return f, true
		}
	}
	return launcherFlag{}, false
}

// peelFlags removes a launcher with the flags of a table.
func (t *translation) peelFlags(l *launch, table launcherFlags, launcher, python string, words []string) error {
	var left, other []string
	module, noPython, passesRank := false, false, launcher == "deepspeed"
	at := 0
	for ; at < len(words) && strings.HasPrefix(words[at], "-") && words[at] != "--"; at++ {
		word := words[at]
		name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if word == "-m" {
			name = "module"
		}
		f, known := table.find(name)
		if !known {
			return fmt.Errorf("%s: %s is not a known flag: write launch.command yourself", launcher, t.readable(word))
		}
		if f.value && !hasValue {
			if at++; at == len(words) {
				return fmt.Errorf("%s: %s needs a value", launcher, t.readable(word))
			}
			value = words[at]
		}
		value = t.resolved(value)
		shown := "--" + name
		if f.value {
			shown += "=" + value
		}
		n, err := strconv.Atoi(value)
		switch {
		case f.use == "":
			left = append(left, "--"+name)
		case f.use == "module":
			module = true
		case f.use == "no-python":
			noPython = true
		case f.use == "no-local-rank":
			passesRank = false
		case f.use == "precision" && isConstant(value):
			l.env = append(l.env, assignment{"ACCELERATE_MIXED_PRECISION", strings.ToLower(value)})
		case f.use == "threads" && err == nil:
			l.env = append(l.env, assignment{"OMP_NUM_THREADS", value})
		case f.use == "per-node":
			l.perNode = t.countOf(l, value)
		case err != nil && isConstant(value) && (f.use == "total" || f.use == "nodes" || f.use == "restarts"):
			return fmt.Errorf("%s: --%s must be a number, not %s", launcher, name, strconv.Quote(value))
		case f.use == "total" && err == nil && n > 0:
			l.total = n
		case f.use == "nodes" && err == nil && n > 0:
			l.nodes = n
		case f.use == "restarts" && err == nil && n >= 0:
			l.maxRestarts = n
		default:
			other = append(other, shown)
		}
	}
	if at < len(words) && words[at] == "--" {
		at++
	}
	if at == len(words) || words[at] == "" {
		return fmt.Errorf("%s: no script follows its flags", launcher)
	}
	if python == "" {
		python = "python3"
	}
	command := words[at:]
	switch {
	case module:
		l.command = []string{python, "-u", "-m", command[0]}
	case noPython:
		l.command = []string{command[0]}
	default:
		l.command = []string{python, "-u", command[0]}
	}
	if passesRank {
		l.command = append(l.command, "--local_rank=${local_rank}")
	}
	l.command = slices.Concat(l.command, command[1:])
	if !l.perNode.given() && l.total == 0 {
		l.perNode = count{word: "gpu"}
	}
	if len(left) > 0 {
		l.notes = append(l.notes, "ddpbatch replaces these flags of "+launcher+": "+strings.Join(left, " "))
	}
	if len(other) > 0 {
		l.notes = append(l.notes, "not translated: "+t.readable(strings.Join(other, " "))+" of "+launcher+
			": without the launcher, the script must set it itself")
	}
	return nil
}

// Flags with a value of mpirun, of Open MPI and of MPICH's Hydra. ":2" means two values, and ":0" none.
const mpiValues = `n np c N ppn perhost npernode ntasks-per-node hostfile machinefile f host H hosts
	x genv:2 env:2 genvlist map-by rank-by bind-to mca:2 gmca:2
	wdir wd launcher bootstrap iface prefix output-filename l:0 mpi timeout report-bindings:0 oversubscribe:0 allow-run-as-root:0 tag-output:0
	display-map:0 v:0 q:0 verbose:0 quiet:0 genvall:0 genvnone:0 use-hwthread-cpus:0
	bind-to-core:0 bynode:0 bysocket:0 nolocal:0 prepend-rank:0`

// peelMPI removes mpirun and similar launchers.
func (t *translation) peelMPI(l *launch, words []string) (rest []string, err error) {
	launcher := path.Base(words[0])
	if launcher == "ibrun" || launcher == "aprun" {
		return nil, fmt.Errorf("%s is a launcher of its site that cannot be translated: write launch.command as one rank of it runs",
			launcher)
	}
	l.mpi, l.usesSrun = true, true
	var other []string
	at := 1
	for ; at < len(words) && strings.HasPrefix(words[at], "-") && words[at] != "--"; at++ {
		name, value, hasValue := strings.Cut(strings.TrimLeft(words[at], "-"), "=")
		flag := words[at]
		takes, known := mpiArguments(name)
		if !known {
			return nil, fmt.Errorf("%s: %s is not a known flag: write launch.command yourself", launcher, t.readable(flag))
		}
		var values []string
		if hasValue {
			values = []string{value}
		} else {
			if at+takes >= len(words) {
				return nil, fmt.Errorf("%s: %s needs a value, and a program after it", launcher, t.readable(flag))
			}
			values = words[at+1 : at+1+takes]
			at += takes
		}
		values = slices.Clone(values)
		for i := range values {
			values[i] = t.resolved(values[i])
		}
		if !t.mpiFlag(l, name, values) {
			other = append(other, strings.Join(append([]string{flag}, values...), " "))
		}
	}
	if at < len(words) && words[at] == "--" {
		at++
	}
	if slices.Contains(words[at:], ":") {
		return nil, fmt.Errorf("%s starts several programs, but a job has only one", launcher)
	}
	if len(other) > 0 {
		l.notes = append(l.notes, "not translated: "+launcher+"'s "+t.readable(strings.Join(other, " "))+": a job file has no key for it")
	}
	return words[at:], nil
}

func mpiArguments(name string) (takes int, known bool) {
	for word := range strings.FieldsSeq(mpiValues) {
		flag, number, numbered := strings.Cut(word, ":")
		if flag == name {
			takes = 1
			if numbered {
				takes, _ = strconv.Atoi(number)
			}
			return takes, true
		}
	}
	return 0, false
}

// mpiFlag reads a flag for the number of ranks or their environment. It returns false for another flag.
func (t *translation) mpiFlag(l *launch, name string, values []string) bool {
	switch name {
	case "n", "np", "c":
		n, err := strconv.Atoi(values[0])
		l.total = max(0, n)
		return err == nil && n > 0
	case "N", "ppn", "perhost", "npernode", "ntasks-per-node":
		n, err := strconv.Atoi(values[0])
		l.perNode = count{n: max(0, n)}
		return err == nil && n > 0
	case "map-by":
		parts := strings.Split(values[0], ":")
		if len(parts) >= 3 && parts[0] == "ppr" && parts[2] == "node" {
			n, err := strconv.Atoi(parts[1])
			l.perNode = count{n: max(0, n)}
			return err == nil && n > 0 && len(parts) == 3
		}
	case "x", "genv", "env":
		variable, value, found := strings.Cut(values[0], "=")
		if len(values) == 2 {
			variable, value, found = values[0], values[1], true
		}
		if found && isConstant(value) {
			l.env = append(l.env, assignment{variable, value})
		}
		return !found || isConstant(value) // without a value it is in the environment anyway
	case "hostfile", "machinefile", "f", "oversubscribe", "allow-run-as-root", "tag-output", "l", "prepend-rank":
		return true
	}
	return false
}
