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

// Node is one node of a run, as seen by a process on it.
type Node struct {
	Run     *rundir.Dir
	Name    string   // as Slurm names it
	Environ []string // of this process
}

// Process is the process of a rank on this node.
type Process struct {
	Rank      int
	PID       int
	Environ   []string // the one its agent gave it
	Dir       string   // its working directory
	Contained bool     // it has another mount namespace than this process, as in a container
}

// Ranks finds the processes of the run's ranks on this node, sorted by rank. It finds them by their environment, and returns the oldest
// process of each rank, though not a runtime's if the container runs (isClientOf). A process that has cleared or overwritten its
// environment is not found. If two attempts of one rank run, as on a node that was cut off, the process of the later attempt is returned.
//
// Commands that a user has started beside a rank have no cookie, and are left out.
func (n Node) Ranks() ([]Process, error) {
	all, err := proc.WithVariables("SLURMD_NODENAME=" + n.Name)
	if err != nil {
		return nil, err
	}
	found := map[int]Process{}
	cookies := map[int]string{}
	for _, r := range all { // oldest first
		environ, err := proc.Environ(r.PID)
		if err != nil {
			continue // the process has ended
		}
		lookup := jobenv.LookupIn(environ)
		cookie, _ := lookup(proc.CookieVariable)
		text, _ := lookup("RANK")
		rank, err := strconv.Atoi(text)
		if dir, _ := lookup("DDPBATCH_RUN_DIR"); !n.isRun(dir) || cookie == "" || err != nil || rank < 0 ||
			cookies[rank] == cookie && !isClientOf(found[rank].PID, r.PID) {
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

// isRun reports whether a path names the run directory. Nodes may know it by another path than the one given to this command. The last
// element is the same on all nodes, and no other run has it.
func (n Node) isRun(path string) bool {
	own := strings.TrimPrefix(n.Run.Path(), filepath.Dir(n.Run.Whole().Path()))
	return strings.HasSuffix(path, own)
}

// clients are the programs of runtimes that do not exec the rank: Podman, Docker, and Apptainer's parent of the rank.
var clients = []string{"podman", "docker", "starter", "starter-suid"}

// isClientOf reports whether a process is a runtime's, in whose container another process of the same rank runs. Podman's monitor has the
// client's mount namespace.
func isClientOf(client, pid int) bool {
	theirs, its := link(client, "ns/mnt"), link(pid, "ns/mnt")
	return slices.Contains(clients, filepath.Base(link(client, "exe"))) && theirs != "" && its != "" && theirs != its
}

// isElsewhere reports whether a process has another view of the file system than this one.
func isElsewhere(pid int) bool {
	theirs, ours := link(pid, "ns/mnt"), link(os.Getpid(), "ns/mnt")
	return theirs != "" && ours != "" && theirs != ours
}

// link returns the target of a link below /proc/PID, or "" if it cannot be read.
func link(pid int, name string) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return ""
	}
	return target
}

// PIDVariable holds the process ID of the rank, for a command that runs beside it.
const PIDVariable = "DDPBATCH_RANK_PID"

// ranksAlone are the variables that only the rank itself may have: the run's secret, and the files and addresses by which its agent learns
// that it is alive or why it failed. The cookie is among them because the agent kills every process that has it.
var ranksAlone = []string{
	"DDPBATCH_SECRET", "DDPBATCH_STORE", "DDPBATCH_LISTEN", proc.CookieVariable, "DDPBATCH_HEARTBEAT_FILE", "DDPBATCH_FLIGHT_FILE",
	"TORCHELASTIC_ERROR_FILE",
}

// noRank is the rank number of a Process that stands for no rank. A command beside it gets the environment of this process.
const noRank = -1

// environBeside returns the environment for a command beside a rank: the rank's, without the variables that only the rank may have. If the
// rank runs in a container, which has other programs, only variables that describe the job are taken from it. TERM is the user's.
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

// without returns environ without the variables for which drop returns true.
func without(environ []string, drop func(name string) bool) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return drop(name)
	})
}

// dirBeside returns the directory in which a command beside a rank runs: the rank's working directory, or the run directory if this process
// cannot reach that.
func (n Node) dirBeside(p Process) string {
	if info, err := os.Stat(p.Dir); p.Dir != "" && err == nil && info.IsDir() {
		return p.Dir
	}
	return n.Run.Path()
}
