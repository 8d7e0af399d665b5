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

// shell is the one that every node has.
const shell = "/bin/sh"

// Shell opens the user's shell beside one rank, or on a node beside its first rank. w names one rank or a node; else it is the lowest rank
// that there is. It returns the shell's exit code.
func (j *Job) Shell(ctx context.Context, w Where, s Streams) (code int, err error) {
	switch {
	case len(w.Ranks) > 1 || w.All:
		return exit.Usage, usage.Errorf("a shell is beside one rank")
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

// Shell turns this process into the user's shell beside the rank, or, of a negative one, beside the first rank here. A line on errs says
// where that is. It returns only if that fails.
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
		return fmt.Errorf("go to where %s works: %w", p, err)
	}
	path := shellOf(n.Environ)
	return fmt.Errorf("run %s: %w", path, unix.Exec(path, []string{filepath.Base(path)}, environ))
}

// shellOf is the user's shell, if the node has it.
func shellOf(environ []string) string {
	path, _ := jobenv.LookupIn(environ)("SHELL")
	if filepath.IsAbs(path) && unix.Access(path, unix.X_OK) == nil {
		return path
	}
	return shell
}

// welcome says beside whom a shell is.
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
