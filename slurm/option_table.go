package slurm

import (
	"slices"
	"strings"
)

// optionKind says what values an option of sbatch takes.
type optionKind int

const (
	textValue     optionKind = iota // a string
	numberOrText                    // a string or a whole number: "a100:4", 4
	countValue                      // a whole number from 1
	zeroCount                       // a whole number from 0
	sizeValue                       // what checkSize accepts, or a whole number of MiB
	timeValue                       // what ParseTime reads, or a whole number of minutes
	flagValue                       // true or false
	optionalValue                   // true, false, or a value: exclusive = true, exclusive = "user"
	yesNoValue                      // "yes" or "no", or a boolean
	zeroOneValue                    // 0 or 1, or a boolean
)

// optionTable holds every long option of sbatch that a job may set, from Slurm 22.05 to 26.05.
// Options that were added after 22.05 are marked with their release. Sources: sbatch(1) of 22.05.8 (Debian 12), and
// https://slurm.schedmd.com/sbatch.html as of 26.05.
var optionTable = map[string]optionKind{
	"account":              textValue,
	"acctg-freq":           numberOrText,
	"array":                numberOrText,
	"batch":                textValue,
	"bb":                   textValue,
	"bbf":                  textValue,
	"begin":                textValue,
	"cluster-constraint":   textValue,
	"clusters":             textValue,
	"comment":              textValue,
	"consolidate-segments": flagValue, // 25.11
	"constraint":           textValue,
	"container":            textValue,
	"container-id":         textValue, // 23.02
	"container-type":       textValue, // 26.05
	"contiguous":           flagValue,
	"core-spec":            zeroCount,
	"cores-per-socket":     countValue,
	"cpu-freq":             numberOrText,
	"cpus-per-gpu":         countValue,
	"cpus-per-task":        countValue,
	"deadline":             textValue,
	"delay-boot":           timeValue,
	"dependency":           textValue,
	"distribution":         textValue,
	"exclude":              textValue,
	"exclusive":            optionalValue,
	"extra-node-info":      numberOrText,
	"get-user-env":         optionalValue,
	"gid":                  numberOrText,
	"gpu-bind":             textValue,
	"gpu-freq":             numberOrText,
	"gpus":                 numberOrText,
	"gpus-per-node":        numberOrText,
	"gpus-per-socket":      numberOrText,
	"gpus-per-task":        numberOrText,
	"gres":                 textValue,
	"gres-flags":           textValue,
	"hint":                 textValue,
	"hold":                 flagValue,
	"ignore-pbs":           flagValue,
	"input":                textValue,
	"kill-on-invalid-dep":  yesNoValue,
	"licenses":             textValue,
	"mail-type":            textValue,
	"mail-user":            textValue,
	"mcs-label":            textValue,
	"mem":                  sizeValue,
	"mem-bind":             textValue,
	"mem-per-cpu":          sizeValue,
	"mem-per-gpu":          sizeValue,
	"mem-update":           textValue, // 26.05
	"mincpus":              countValue,
	"network":              textValue,
	"nice":                 optionalValue,
	"no-kill":              optionalValue,
	"no-requeue":           flagValue,
	"nodefile":             textValue,
	"nodelist":             textValue,
	"nodes":                countValue, // sbatch takes a range too; a world of ranks has one size
	"ntasks-per-core":      countValue,
	"ntasks-per-socket":    countValue,
	"oom-kill-step":        optionalValue, // 24.05
	"overcommit":           flagValue,
	"oversubscribe":        flagValue,
	"partition":            textValue,
	"power":                textValue, // until 24.05
	"prefer":               textValue,
	"priority":             numberOrText,
	"profile":              textValue,
	"propagate":            optionalValue,
	"qos":                  textValue,
	"reboot":               flagValue,
	"requeue":              optionalValue, // with a value since 25.11
	"reservation":          textValue,
	"resources":            textValue,     // 25.05
	"resv-ports":           optionalValue, // 23.11
	"segment":              countValue,    // 24.05
	"signal":               numberOrText,
	"sockets-per-node":     countValue,
	"spread-job":           flagValue,
	"spread-segments":      flagValue, // 25.11
	"stepmgr":              flagValue, // 24.05
	"switches":             numberOrText,
	"thread-spec":          countValue,
	"threads-per-core":     countValue,
	"time":                 timeValue,
	"time-min":             timeValue,
	"tmp":                  sizeValue,
	"tres-bind":            textValue, // 23.02
	"tres-per-task":        textValue, // 23.11
	"uid":                  numberOrText,
	"use-min-nodes":        flagValue,
	"verbose":              flagValue,
	"wait-all-nodes":       zeroOneValue,
	"wckey":                textValue,
}

// OptionKeys lists all keys that ParseOption takes, in job.toml's spelling, sorted.
func OptionKeys() []string {
	keys := make([]string, 0, len(optionTable))
	for name := range optionTable {
		keys = append(keys, optionKey(name))
	}
	slices.Sort(keys)
	return keys
}

// componentOptions are the options that each component of a heterogeneous job may set for itself: those that sbatch resets between two
// components (reset_each_pass in Slurm's slurm_opt.c), and those that the next component inherits and may override.
var componentOptions = []string{
	"bb", "constraint", "contiguous", "core-spec", "cores-per-socket", "cpu-freq", "cpus-per-gpu", "cpus-per-task", "distribution",
	"exclusive", "extra-node-info", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket",
	"gpus-per-task", "gres", "gres-flags",
	"hint", "licenses", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nodelist", "nodes", "ntasks-per-core",
	"ntasks-per-socket", "overcommit", "oversubscribe", "partition", "resources", "segment", "sockets-per-node", "spread-job", "switches",
	"thread-spec", "threads-per-core", "tmp", "tres-bind", "tres-per-task", "use-min-nodes",
	"account", "exclude", "mem", "prefer", "qos", "reservation", // inherited
}

// ComponentKeys lists the keys that a component of a heterogeneous job may set for itself, in job.toml's spelling.
func ComponentKeys() []string {
	keys := make([]string, len(componentOptions))
	for i, name := range componentOptions {
		keys[i] = optionKey(name)
	}
	return keys
}

// OptionWords returns the values that a key of [slurm] takes if they are a short list of words. It returns nil for other keys, and for
// unknown ones.
func OptionWords(key string) []string {
	kind, known := optionTable[optionName(key)]
	switch {
	case !known:
		return nil
	case kind == flagValue:
		return []string{"true", "false"}
	case kind == yesNoValue:
		return []string{"yes", "no"}
	case kind == zeroOneValue:
		return []string{"0", "1"}
	}
	return nil
}

// OptionTakes returns the type of the values that a key of [slurm] takes, as docs/job names it. It is empty for unknown keys.
func OptionTakes(key string) string {
	kind, known := optionTable[optionName(key)]
	if !known {
		return ""
	}
	return [...]string{
		textValue:     "text",
		numberOrText:  "text or whole number",
		countValue:    "whole number from 1",
		zeroCount:     "whole number from 0",
		sizeValue:     "size, or whole number of MiB",
		timeValue:     "time, or whole number of minutes",
		flagValue:     "true or false",
		optionalValue: "true, false or a value",
		yesNoValue:    `"yes" or "no"`,
		zeroOneValue:  "0 or 1",
	}[kind]
}

// optionKey returns job.toml's spelling of an option's name.
func optionKey(name string) string { return strings.ReplaceAll(name, "-", "_") }

// reservedOptions are the options of sbatch that ddpbatch sets itself, or that would keep it
// from working, each with what to do instead.
var reservedOptions = map[string]string{
	"job-name":        "set name, at the top of the job file",
	"chdir":           "set workdir, at the top of the job file",
	"output":          "the output is in the run directory; set run_dir to have it elsewhere",
	"error":           "the output is in the run directory; set run_dir to have it elsewhere",
	"open-mode":       "ddpbatch always appends to the output",
	"wrap":            "set launch.command",
	"parsable":        `use "ddpbatch submit --parsable"`,
	"test-only":       `use "ddpbatch submit --test-only"`,
	"wait":            `use "ddpbatch submit --wait"`,
	"quiet":           "sbatch would not print the job's id",
	"export":          "put variables into env, in the [setup] table",
	"export-file":     "put variables into env, in the [setup] table",
	"ntasks":          "set launch.nproc_per_node and slurm.nodes",
	"ntasks-per-node": "set launch.nproc_per_node",
	"ntasks-per-gpu":  `set launch.nproc_per_node = "gpu"`,
	"external":        "an external job does not run a script",
	"extra":           `in [slurm] it is the list of further words; for sbatch's own option put "--extra=..." into that list`,
	"help":            "it only prints text",
	"usage":           "it only prints text",
	"version":         "it only prints text",
}
