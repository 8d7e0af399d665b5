package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Part is one job, or one component of a heterogeneous job, with its nodes.
type Part struct {
	JobStatus
	Nodes []string // in Slurm's order; none before the job has begun
}

// partFormat asks for the fields that parseParts reads; the name, which may hold anything, stands last.
var partFormat = strings.Join([]string{"%i", "%A", "%T", "%r", "%N", "%j"}, separator)

// Parts asks the controller once where a job, or one element of an array, runs. A heterogeneous job has a Part for each component, in their
// order. The error matches [ErrUnknownJob] if the controller does not know the job (any more).
func (c *Client) Parts(ctx context.Context, id string) ([]Part, error) {
	job, err := ParseJobID(id)
	if err != nil {
		return nil, err
	}
	out, err := c.ask(ctx, "squeue", onCluster(job.Cluster, "-h", "-t", "all", "-j", job.ID, "-o", partFormat)...)
	if err != nil {
		return nil, fmt.Errorf("ask where job %s runs: %w", job.ID, err)
	}
	parts, err := parseParts(out, job.ID)
	if err != nil {
		return nil, fmt.Errorf("ask where job %s runs: %w", job.ID, err)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("ask where job %s runs: %w", job.ID, ErrUnknownJob)
	}
	return parts, nil
}

// parseParts reads the lines that have all fields of partFormat, and are of the job; others are a site's greeting.
func parseParts(stdout []byte, id string) ([]Part, error) {
	var parts []Part
	for line := range strings.Lines(string(stdout)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), separator, 6)
		if len(f) != 6 || !isNumber(WholeID(f[0])) {
			continue
		}
		part := Part{JobStatus: JobStatus{ID: f[0], RawID: f[1], State: f[2], Reason: f[3], Name: f[5]}}
		if !part.Of(id) {
			continue
		}
		if f[4] != "" {
			var err error
			if part.Nodes, err = ExpandHostlist(f[4], MaxNodes); err != nil {
				return nil, fmt.Errorf("the nodes of job %s: %w", f[0], err)
			}
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// Component is the number of a heterogeneous job's component; -1: the job is not one.
func (p Part) Component() int {
	_, text, found := strings.Cut(p.ID, "+")
	n, err := strconv.Atoi(text)
	if !found || err != nil {
		return -1
	}
	return n
}

// Beside is a command that runs in a job beside the job's own step: once on each of some nodes.
type Beside struct {
	Part     Part
	Nodes    []string // of Part; at least one
	Dir      string   // where the command begins; there on all of Nodes
	Terminal bool     // the one task gets a terminal of its own, and this process's is in its hands until it ends
	Input    bool     // the one task reads this process's standard input; else it is empty
	Command  []string // the program's path, and its arguments
}

// besideDelay is how long srun has from TERM on to end its tasks.
const besideDelay = 10 * time.Second

// Beside returns srun's call for such a command, which is not started yet. It gets the whole of the job's nodes, and waits for none of it
// (srun --overlap); srun's exit code is the highest of the command's. Its streams are for the caller to set. It gets TERM when ctx ends,
// and when this process does.
//
// It must be started from a goroutine that keeps its thread until the command has ended, as [Exec] does.
func (c *Client) Beside(ctx context.Context, b Beside) (*exec.Cmd, error) {
	args, err := b.args()
	if err != nil {
		return nil, err
	}
	path, err := lookPath("srun", c.Environ)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, onCluster(c.clusters, args...)...)
	cmd.Env = c.environ("srun")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = besideDelay
	// In a process group of its own it is not hit by Ctrl-C, which would only have it ask for another one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: !b.Terminal}
	return cmd, nil
}

// args are srun's words. GPUs are not named: such a step has all that the job has on the node. Nor are cores; without --cpu-bind=none the
// step would be bound to one.
func (b Beside) args() ([]string, error) {
	switch {
	case len(b.Nodes) == 0 || len(b.Command) == 0:
		return nil, errors.New("run a command beside a job: name nodes and a command")
	case !isNumber(b.Part.RawID):
		return nil, fmt.Errorf("run a command beside a job: %s is no job's number", clip(b.Part.RawID))
	}
	nodes := strconv.Itoa(len(b.Nodes))
	job, component := b.Part.RawID, b.Part.Component()
	if component >= 0 {
		job = WholeID(b.Part.ID)
	}
	args := []string{"--overlap", "--jobid=" + job}
	if component >= 0 {
		args = append(args, "--het-group="+strconv.Itoa(component))
	}
	args = append(args, "--nodelist="+FoldHostlist(b.Nodes), "--nodes="+nodes, "--ntasks="+nodes, "--ntasks-per-node=1",
		"--cpu-bind=none", "--mem=0", "--mpi=none", "--kill-on-bad-exit=0", "--wait=0")
	if b.Dir != "" {
		args = append(args, "--chdir="+b.Dir)
	}
	switch {
	case b.Terminal:
		args = append(args, "--pty")
	case !b.Input:
		args = append(args, "--input=none")
	}
	return append(args, b.Command...), nil
}
