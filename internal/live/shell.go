package live

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

// shell exists on every node.
const shell = "/bin/sh"

// Shell opens the user's shell beside one rank. w names one rank, or a node, whose first rank is taken; without either it is the job's
// lowest rank. Shell returns the shell's exit code.
func (j *Job) Shell(ctx context.Context, w Where, s Streams) (code int, err error) {
	switch {
	case len(w.Ranks) > 1 || w.All:
		return exit.Usage, usage.Errorf("a shell runs beside one rank")
	case w.Node == "" && len(w.Ranks) == 0 && len(j.Ranks) > 0:
		w.Ranks = []int{j.Ranks[0].Number}
	case w.Node == "" && len(w.Ranks) == 0:
		return exit.Usage, j.notBegun()
	}
	found, err := j.find(w)
	if err != nil {
		return exit.Usage, err
	}
	return j.runOn(ctx, found.hosts, s, func(host string) []string {
		return []string{"beside", "shell", "--node", host, "--rank", folded(found.ranks), "--", j.Run.Path()}
	})
}

// Shell turns this process into the user's shell beside a rank, or beside the first rank here if rank is negative. It first writes a line
// to errs that says where the shell runs. It returns only if it fails.
func (n Node) Shell(rank int, errs io.Writer) error {
	here, err := n.Ranks()
	if err != nil {
		return err
	}
	p := first(here)
	if rank >= 0 {
		found, err := n.named(here, []int{rank})
		if err != nil {
			return err
		}
		p = first(found)
	}
	fmt.Fprintln(errs, "ddpbatch: "+n.welcome(p))
	environ := n.environBeside(p)
	if err := unix.Chdir(n.dirBeside(p)); err != nil {
		return fmt.Errorf("change to the working directory of %s: %w", p, err)
	}
	path := shellOf(n.Environ)
	return fmt.Errorf("run %s: %w", path, unix.Exec(path, []string{filepath.Base(path)}, environ))
}

// shellOf returns the user's shell if the node has it, and else /bin/sh.
func shellOf(environ []string) string {
	path, _ := jobenv.LookupIn(environ)("SHELL")
	if filepath.IsAbs(path) && unix.Access(path, unix.X_OK) == nil {
		return path
	}
	return shell
}

// welcome returns the line that says where the shell runs.
func (n Node) welcome(p Process) string {
	node := text.Clean(n.Name)
	if p.Rank == noRank {
		return fmt.Sprintf("%s, where no process of a rank was found; the environment is not a rank's", node)
	}
	line := fmt.Sprintf("%s, beside %s, which is process %d ($%s)", node, p, p.PID, PIDVariable)
	if p.Contained {
		line += "; the rank is in a container, and this shell is outside of it"
	}
	return line
}

func (p Process) String() string { return "rank " + strconv.Itoa(p.Rank) }
