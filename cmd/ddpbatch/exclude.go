package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// Limits on what offerExclude reads, which takes some milliseconds.
const (
	recentRuns    = 32
	recentLedgers = 64
)

const nodeNameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// offerExclude names the nodes that failed often in the user's recent runs, and how to exclude them. The decision is the user's. If the
// job, or a word for sbatch, already excludes nodes, the user has decided.
func offerExclude(e *env, run *rundir.Dir, options slurm.Options, words []string, id string) {
	if _, decided := options.Get("exclude"); decided || slices.ContainsFunc(slices.Concat(options.Extra, words), isExclude) {
		return
	}
	often := goodput.FailedOften(recent(e, run), recentLedgers, run.Cluster(), e.Now())
	if len(often) == 0 {
		return
	}
	var names []string
	for _, f := range often {
		if isNodeName(f.Node) && len(names) < 16 {
			names = append(names, f.Node)
		}
	}
	if len(names) == 0 {
		return
	}
	list := strings.Join(names, ",")
	update := []string{"scontrol"}
	if cluster := run.Cluster(); cluster != "" {
		update = append(update, "--clusters="+cluster)
	}
	update = append(update, "update", "JobId="+id, "ExcNodeList="+list)
	fmt.Fprintf(e.Err, "ddpbatch: %s failed often recently (ddpbatch account): submit with -- --exclude=%s to avoid them, or now: %s\n",
		text.Few(names, 4), list, slurm.ShellJoin(update))
}

// isExclude reports whether a word for sbatch excludes nodes.
func isExclude(word string) bool {
	return strings.HasPrefix(word, "--exclude") || strings.HasPrefix(word, "-x")
}

// isNodeName reports whether a name from a file may be that of a node, and has no special meaning for a shell.
func isNodeName(name string) bool {
	return name != "" && len(name) <= 255 && !strings.HasPrefix(name, "-") &&
		!strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(nodeNameBytes, r) })
}

// recent returns the user's newest runs: those of the index, which has all submitted runs, or else of the run's directory.
func recent(e *env, run *rundir.Dir) []*rundir.Dir {
	if indexed := rundir.Newest(string(e.index()), recentRuns); len(indexed) > 0 {
		return indexed
	}
	return rundir.Newest(filepath.Dir(run.Path()), recentRuns)
}
