package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/lines"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/output"
)

// stopDelay is the time between TERM and KILL for commands that run beside a rank.
const stopDelay = 5 * time.Second

// Exec runs a command once on each of the job's nodes that have ranks, or, if w names ranks, once for each of those ranks. It returns the
// highest exit code. Each command runs in the environment and working directory of its rank; a command that runs once on a node uses the
// node's first rank. If several commands run, each line of output begins with the place it comes from.
func (j *Job) Exec(ctx context.Context, w Where, command []string, s Streams) (code int, err error) {
	found, err := j.find(w)
	if err != nil {
		return exit.Usage, err
	}
	label := ""
	switch {
	case len(found.ranks) > 1:
		label = output.DefaultPrefix
	case len(found.hosts) > 1:
		label = "[${host}] "
	}
	return j.runOn(ctx, found.hosts, s, func(host string) []string {
		return slices.Concat([]string{"beside", "command", "--node", host, "--label", label, "--rank", folded(found.ranks), "--",
			j.Run.Path()}, command)
	})
}

// Exec runs a command for each rank in ranks that is on this node, or once if ranks is nil. It returns the highest exit code: 127 if the
// command does not exist, 126 if it cannot be run.
func (n Node) Exec(ctx context.Context, ranks []int, label string, command []string, out, errs io.Writer) (code int, err error) {
	here, err := n.Ranks()
	if err != nil {
		return exit.Failed, err
	}
	if ranks == nil {
		here = []Process{first(here)}
	} else {
		here, err = n.named(here, ranks)
	}
	if len(here) == 0 && err == nil { // an attempt that has just begun
		err = fmt.Errorf("no process of these ranks on %s (yet)", text.Clean(n.Name))
	}
	shared := Streams{Out: out, Err: errs}.shared()
	codes, failed := make([]int, len(here)), make([]error, len(here))
	var wg sync.WaitGroup
	for i, p := range here {
		wg.Go(func() { codes[i], failed[i] = n.execFor(ctx, p, label, command, shared) })
	}
	wg.Wait()
	if err != nil {
		codes = append(codes, exit.Failed)
	}
	return slices.Max(codes), errors.Join(append(failed, err)...)
}

// first returns the first of the ranks here, or a Process whose Rank is noRank.
func first(here []Process) Process {
	if len(here) == 0 {
		return Process{Rank: noRank}
	}
	return here[0]
}

// named returns those of the ranks here that are wanted. The error names wanted ranks whose logs say that they run here but that have no
// process.
func (n Node) named(here []Process, wanted []int) (found []Process, err error) {
	for _, p := range here {
		if slices.Contains(wanted, p.Rank) {
			found = append(found, p)
		}
	}
	missing, err := n.missing(here)
	missing = slices.DeleteFunc(missing, func(rank int) bool { return !slices.Contains(wanted, rank) })
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("no process on %s belongs to rank %s: it has ended or has cleared its environment",
			text.Clean(n.Name), folded(missing))
	}
	return found, err
}

// missing returns the ranks that the newest attempt has started here and that have no process here.
func (n Node) missing(here []Process) (ranks []int, err error) {
	attempt, err := n.Run.NewestAttempt()
	if err != nil {
		return nil, err
	}
	logs, err := n.Run.RankLogs(attempt)
	for _, log := range logs {
		isHere := func(p Process) bool { return p.Rank == log.Rank }
		if log.Host == n.Name && log.Stream == "out" && !slices.ContainsFunc(here, isHere) {
			ranks = append(ranks, log.Rank)
		}
	}
	return ranks, err
}

// execFor runs a command beside one rank. A shell looks the program up in the rank's PATH, from the rank's working directory, and reports
// what is wrong with it.
func (n Node) execFor(ctx context.Context, p Process, label string, command []string, s Streams) (int, error) {
	worker := output.Worker{Host: n.Name, Rank: p.Rank}
	out := &lines.Writer{To: s.Out, Label: output.Label(label, worker), Redraw: true}
	errs := &lines.Writer{To: s.Err, Label: out.Label, Redraw: true}
	cmd := exec.Command(shell, append([]string{"-c", `exec "$@"`, "sh"}, command...)...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = n.environBeside(p), n.dirBeside(p), out, errs
	process, err := proc.Start(cmd)
	if err != nil {
		return exit.Failed, fmt.Errorf("run a command on %s: %w", text.Clean(n.Name), err)
	}
	stop := context.AfterFunc(ctx, func() {
		_ = process.Signal(syscall.SIGTERM)
		time.AfterFunc(stopDelay, func() { _ = process.Signal(syscall.SIGKILL) })
	})
	defer stop()
	<-process.Done()
	return process.Code(), errors.Join(process.Err(), out.Finish(), errs.Finish())
}
