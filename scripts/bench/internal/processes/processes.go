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

// Outcome is what came of one launch.
type Outcome struct {
	Began time.Time     // just before its first process was started
	Took  time.Duration // until all of its processes had ended
	Hung  bool          // it did not end after the word that it would
	Fault error         // nil: none
}

// Launch runs the processes of one launch, for limit at most, and leaves none of them behind. The first one's output is written to output,
// and its exit code counts. Where there is a word on ended, all are to end soon. Its error is that of outer: what goes wrong with the
// launch is a part of the outcome.
func Launch(outer context.Context, limit time.Duration, output io.Writer, ended <-chan struct{}, commands ...*exec.Cmd) (Outcome, error) {
	ctx, cancel := context.WithTimeoutCause(outer, limit, fmt.Errorf("did not end in %v, and was killed", limit))
	defer cancel()
	o := launch(ctx, output, new(bytes.Buffer), ended, commands)
	if outer.Err() != nil {
		return Outcome{}, outer.Err()
	}
	return o, nil
}

// Run runs a command to its end, and gives all that it said and how long it took. It is a launch as others are: its environment
// is the same, and an interrupt, whose error is that of ctx, leaves nothing behind.
func Run(ctx context.Context, cmd *exec.Cmd) (said string, took time.Duration, err error) {
	var out bytes.Buffer
	o := launch(ctx, &out, &out, nil, []*exec.Cmd{cmd})
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	return out.String(), o.Took, o.Fault
}

// launch runs commands until ctx is done, whose cause is a fault of theirs.
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
	group.Kill() // all that it wrote has been read
	switch {
	case late:
		o.Fault = context.Cause(ctx)
	case !o.Hung && group.Code(0) != 0:
		o.Fault = fmt.Errorf("exit code %d: %s", group.Code(0), tools.LastLine(complaint.String()))
	}
	return o
}

// Group is the processes of one launch.
type Group struct {
	processes []*proc.Process
	mark      string
}

// Start starts commands. To the environment of each belongs that of this program, without what would make it a part of a job
// around. Where one cannot be started those before it are killed.
func Start(commands ...*exec.Cmd) (*Group, error) {
	g := &Group{mark: markVariable + "=" + rand.Text()}
	for _, cmd := range commands {
		cmd.Env = append(append(environ(os.Environ()), cmd.Env...), g.mark)
		cmd.WaitDelay = time.Second // for what its orphans hold open
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

// Await waits until all processes have ended or ctx is done, and tells whether they would not end after the word on ended; nil: there
// is none.
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

// Kill ends what is left of the launch, and returns when it has.
func (g *Group) Kill() {
	for _, p := range g.processes {
		_ = p.Signal(syscall.SIGKILL) // its group is ours, or gone
	}
	sweep(g.mark)
	for _, p := range g.processes {
		<-p.Done()
	}
}

// Code is the exit code of the i-th process, after Kill: 128+N for signal N.
func (g *Group) Code(i int) int { return g.processes[i].Code() }

// sweep kills every process that has the entry mark in its environment, and those that they start meanwhile. It waits some seconds
// for them to end: what waits for a disk does not end sooner.
func sweep(mark string) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
	defer cancel()
	_, _ = proc.SweepMarked(ctx, mark) // what is left then is left: its launch has an outcome
}

// tuningPrefixes and tuningNames are of variables that tune one of the sides, or say where its site is.
var (
	tuningPrefixes = []string{
		"OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "TORCH_", "ATEN_", "GLOO_", // PyTorch, and the libraries that compute
		"UCX_", "FI_", "MPIR_", "MPICH_", "HYDRA_", "PRTE_", // MPI
		"ZSTD_",
		"SLURM_", // what slurm.Scrub leaves a job of the site's
	}
	tuningNames = []string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG"}
)

// environ is the environment of a launch, of this program's: without what would make it part of a job around, or change what it does. What
// a side has of these is what its command line shows.
func environ(own []string) []string {
	kept, _ := slurm.Scrub(own)
	return slices.DeleteFunc(kept, shapesLaunch)
}

func shapesLaunch(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return slices.Contains(tuningNames, name) || slices.ContainsFunc(tuningPrefixes, begins)
}

// Lines is one command's output: it passes whole lines on as they come, without the space around them.
type Lines struct {
	Receive func(line string)
	rest    []byte // of a line without an end
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

// FreePort is one that was free a moment ago: torch cannot be handed a socket.
func FreePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "29500"
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
