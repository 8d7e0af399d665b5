package processes

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/scripts/bench/internal/tools"
	"ddpbatch/slurm"
)

// Outcome is the result of one launch.
type Outcome struct {
	Began time.Time     // just before its first process was started
	Took  time.Duration // until all of its processes had ended
	Hung  bool          // it did not end after its output said that it would
	Fault error         // nil: none
}

// Launch runs the processes of one launch, for at most limit, and leaves none of them behind. The output of the first one is written to
// output, and its exit code counts. After a value on ended, all of them must end soon. Launch returns the error of outer; a failure of the
// launch is part of the outcome.
func Launch(outer context.Context, limit time.Duration, output io.Writer, ended <-chan struct{}, commands ...*exec.Cmd) (Outcome, error) {
	ctx, cancel := context.WithTimeoutCause(outer, limit, fmt.Errorf("did not end in %v, and was killed", limit))
	defer cancel()
	o := launch(ctx, output, new(bytes.Buffer), ended, commands)
	if outer.Err() != nil {
		return Outcome{}, outer.Err()
	}
	return o, nil
}

// Run runs a command to its end, and returns its output and how long it took. It is a launch like others: the environment is the same, and
// an interrupt, which returns the error of ctx, leaves nothing behind.
func Run(ctx context.Context, cmd *exec.Cmd) (said string, took time.Duration, err error) {
	var out bytes.Buffer
	o := launch(ctx, &out, &out, nil, []*exec.Cmd{cmd})
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	return out.String(), o.Took, o.Fault
}

// launch runs commands until ctx is done, whose cause counts as their fault.
func launch(ctx context.Context, output io.Writer, complaint *bytes.Buffer, ended <-chan struct{}, commands []*exec.Cmd) (o Outcome) {
	commands[0].Stdout, commands[0].Stderr = output, complaint
	o.Began = time.Now()
	group, err := Start(commands...)
	if err != nil {
		o.Fault = fmt.Errorf("start it: %w", err)
		return o
	}
	o.Hung = group.Await(ctx, ended)
	o.Took = time.Since(o.Began)
	late := ctx.Err() != nil
	group.Kill() // all output has been read
	switch {
	case late:
		o.Fault = context.Cause(ctx)
	case !o.Hung && group.Code(0) != 0:
		o.Fault = fmt.Errorf("exit code %d: %s", group.Code(0), tools.LastLine(complaint.String()))
	}
	return o
}

// Group holds the processes of one launch.
type Group struct {
	processes []*proc.Process
	mark      string
}

// Start starts commands. Each also gets this program's environment, without variables that would make it a part of an enclosing job. If one
// cannot be started, those before it are killed.
func Start(commands ...*exec.Cmd) (*Group, error) {
	g := &Group{mark: markVariable + "=" + rand.Text()}
	for _, cmd := range commands {
		cmd.Env = append(append(environ(os.Environ()), cmd.Env...), g.mark)
		cmd.WaitDelay = time.Second // for what its orphans keep open
		p, err := proc.Start(cmd)
		if err != nil {
			g.Kill()
			return nil, err
		}
		g.processes = append(g.processes, p)
	}
	return g, nil
}

const (
	// endGrace is how long a launch may take to end after it has said that it is done.
	endGrace = 10 * time.Second

	sweepLimit = 10 * time.Second

	// markVariable finds the processes of a launch that have left its process groups, as those of MPI launchers do.
	markVariable = "DDPBATCH_BENCH_LAUNCH"
)

// Await waits until all processes have ended or ctx is done. It reports whether they did not end after a value on ended, which may be nil.
func (g *Group) Await(ctx context.Context, ended <-chan struct{}) (hung bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, p := range g.processes {
			<-p.Done()
		}
	}()
	var grace <-chan time.Time
	for {
		select {
		case <-done:
			return false
		case <-ctx.Done():
			return false
		case <-ended:
			grace, ended = time.After(endGrace), nil
		case <-grace:
			return true
		}
	}
}

// Kill kills what is left of the launch, and returns when it has ended.
func (g *Group) Kill() {
	for _, p := range g.processes {
		_ = p.Signal(syscall.SIGKILL) // its group is ours, or gone
	}
	sweep(g.mark)
	for _, p := range g.processes {
		<-p.Done()
	}
}

// Code returns the exit code of the i-th process, after Kill: 128+N for signal N.
func (g *Group) Code(i int) int { return g.processes[i].Code() }

// sweep kills every process that has the entry mark in its environment, and those that they start meanwhile. It waits some seconds for them
// to end; a process that waits for a disk does not end sooner.
func sweep(mark string) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
	defer cancel()
	_, _ = proc.SweepMarked(ctx, mark) // the launch has its outcome, whatever is left
}

// tuningPrefixes and tuningNames match variables that tune one of the sides, or describe its site.
var (
	tuningPrefixes = []string{
		"OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "TORCH_", "ATEN_", "GLOO_", // PyTorch, and the libraries that compute
		"UCX_", "FI_", "MPIR_", "MPICH_", "HYDRA_", "PRTE_", // MPI
		"ZSTD_",
		"SLURM_", // what slurm.Scrub leaves of the site's variables
	}
	tuningNames = []string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG"}
)

// environ returns the environment of a launch: this program's, without variables that would make it part of an enclosing job, or change
// what it does. The variables that a side does have are shown in its command line.
func environ(own []string) []string {
	kept, _ := slurm.Scrub(own)
	return slices.DeleteFunc(kept, shapesLaunch)
}

func shapesLaunch(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return slices.Contains(tuningNames, name) || slices.ContainsFunc(tuningPrefixes, begins)
}

// Lines is the output of one command. It passes whole lines on as they come, without surrounding space.
type Lines struct {
	Receive func(line string)
	rest    []byte // an unfinished line
}

func (l *Lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.rest = rest
		l.Receive(strings.TrimSpace(string(line)))
	}
}

// FreePort returns a port that was free a moment ago, because torch cannot inherit a socket.
func FreePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "29500"
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
