package live

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// Node is one node of a run, seen by a process there.
type Node struct {
	Run     *rundir.Dir
	Name    string   // as Slurm has it
	Environ []string // of this process
}

// Process is the process of a rank on this node.
type Process struct {
	Rank      int
	PID       int
	Environ   []string // as its agent started it
	Dir       string   // where it works
	Contained bool     // it sees other files than this process: it runs in a container
}

// Ranks finds the processes of the run's ranks here, by rank: each is the first of its processes, by their environment. One that has
// cleared or overwritten its environment is not found; and of two attempts of one rank, as a node that was cut off may have, it is the
// later one.
//
// What a person has started beside a rank has no cookie, and so is none.
func (n Node) Ranks() ([]Process, error) {
	all, err := proc.WithVariables("SLURMD_NODENAME=" + n.Name)
	if err != nil {
		return nil, err
	}
	found := map[int]Process{}
	cookies := map[int]string{}
	for _, r := range all { // the oldest first
		environ, err := proc.Environ(r.PID)
		if err != nil {
			continue // it has ended
		}
		lookup := jobenv.LookupIn(environ)
		cookie, _ := lookup(proc.CookieVariable)
		text, _ := lookup("RANK")
		rank, err := strconv.Atoi(text)
		if dir, _ := lookup("DDPBATCH_RUN_DIR"); !n.isRun(dir) || cookie == "" || err != nil || rank < 0 || cookies[rank] == cookie {
			continue
		}
		cookies[rank] = cookie
		found[rank] = Process{Rank: rank, PID: r.PID, Environ: environ, Dir: link(r.PID, "cwd"), Contained: isElsewhere(r.PID)}
	}
	var ranks []Process
	for _, p := range found {
		ranks = append(ranks, p)
	}
	slices.SortFunc(ranks, func(a, b Process) int { return a.Rank - b.Rank })
	return ranks, nil
}

// isRun reports whether a path is the run's. Where nodes have it by another name than this command was given, the last part is the same,
// which no other run has.
func (n Node) isRun(path string) bool {
	own := strings.TrimPrefix(n.Run.Path(), filepath.Dir(n.Run.Whole().Path()))
	return strings.HasSuffix(path, own)
}

// isElsewhere reports whether a process has another view of the file system than this one.
func isElsewhere(pid int) bool {
	theirs, ours := link(pid, "ns/mnt"), link(os.Getpid(), "ns/mnt")
	return theirs != "" && ours != "" && theirs != ours
}

// link is what a link below /proc/PID leads to; "" where that is not told.
func link(pid int, name string) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return ""
	}
	return target
}

// PIDVariable tells what runs beside a rank which process that is.
const PIDVariable = "DDPBATCH_RANK_PID"

// ranksAlone are variables that are a rank's alone: the run's secret, and what tells its agent that it lives, or of what it has failed. The
// cookie is among them, as its agent ends whatever has it.
var ranksAlone = []string{
	"DDPBATCH_SECRET", "DDPBATCH_STORE", "DDPBATCH_LISTEN", proc.CookieVariable, "DDPBATCH_HEARTBEAT_FILE", "DDPBATCH_FLIGHT_FILE",
	"TORCHELASTIC_ERROR_FILE",
}

// noRank is the number of a Process that stands for none: what runs beside it has the environment of this process.
const noRank = -1

// environBeside is the environment of what runs beside a rank: the rank's, less what is the rank's alone. Of one in a container, whose
// programs are elsewhere, only what tells of the job is taken over. The terminal is the person's.
func (n Node) environBeside(p Process) []string {
	if p.Rank == noRank {
		return n.Environ
	}
	environ := slices.Clone(p.Environ)
	if p.Contained {
		_, fromJob := slurm.Scrub(p.Environ)
		fromJob = append(fromJob, "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS")
		own := without(n.Environ, func(name string) bool { return slices.Contains(fromJob, name) })
		environ = append(own, without(environ, func(name string) bool { return !slices.Contains(fromJob, name) })...)
	}
	environ = without(environ, func(name string) bool { return name == "TERM" || slices.Contains(ranksAlone, name) })
	if term, ok := jobenv.LookupIn(n.Environ)("TERM"); ok {
		environ = append(environ, "TERM="+term)
	}
	return append(environ, PIDVariable+"="+strconv.Itoa(p.PID))
}

// without is an environment less the variables of some names.
func without(environ []string, drop func(name string) bool) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return drop(name)
	})
}

// dirBeside is where a command beside a rank runs: where the rank does, or else, where this process cannot, in the run directory.
func (n Node) dirBeside(p Process) string {
	if info, err := os.Stat(p.Dir); p.Dir != "" && err == nil && info.IsDir() {
		return p.Dir
	}
	return n.Run.Path()
}
