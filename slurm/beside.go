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
	Nodes []string // in Slurm's order; empty before the job has begun
}

// partFormat asks for the fields that parseParts reads. The name, which may hold anything, is the last.
var partFormat = strings.Join([]string{"%i", "%A", "%T", "%r", "%N", "%j"}, separator)

// Parts asks the controller once where a job, or one element of an array, runs. A heterogeneous job has a Part for each component, in their
// order. The error matches [ErrUnknownJob] if the controller does not know the job, or has forgotten it.
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

// parseParts reads the lines that have all fields of partFormat and belong to the job. Other lines are a site's greeting.
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

// Component returns the number of a heterogeneous job's component, or -1 if the job is not heterogeneous.
func (p Part) Component() int {
	_, text, found := strings.Cut(p.ID, "+")
	n, err := strconv.Atoi(text)
	if !found || err != nil {
		return -1
	}
	return n
}

// Beside is a command that runs in a job beside the job's own step, once on each of the given nodes.
type Beside struct {
	Part     Part
	Nodes    []string // of Part; at least one
	Dir      string   // the command's working directory; it must exist on all of Nodes
	Terminal bool     // the only task gets a terminal of its own, and controls this process's terminal until it ends
	Input    bool     // the only task reads this process's standard input; otherwise its input is empty
	Command  []string // the program's path, and its arguments
}

// besideDelay is how long srun has after SIGTERM to end its tasks.
const besideDelay = 10 * time.Second

// Beside returns a call of srun that runs the command; the caller sets its streams and starts it. The command shares all of the job's
// resources on the nodes, and does not wait for them to be free (srun --overlap). srun's exit code is the highest of the tasks' exit codes.
// srun gets SIGTERM when ctx ends, and when this process ends.
//
// The caller must start it from a goroutine that keeps its thread until the command has ended, as [Exec] does.
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
	// In a process group of its own srun does not get Ctrl-C, after which it would only ask for another one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: !b.Terminal}
	return cmd, nil
}

// args returns srun's arguments. They do not name GPUs: such a step has all that the job has on the node. They do not name cores either;
// without --cpu-bind=none the step would be bound to one core.
func (b Beside) args() ([]string, error) {
	switch {
	case len(b.Nodes) == 0 || len(b.Command) == 0:
		return nil, errors.New("run a command beside a job: name nodes and a command")
	case !isNumber(b.Part.RawID):
		return nil, fmt.Errorf("run a command beside a job: %s is not the number of a job", clip(b.Part.RawID))
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
