package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Client talks to a Slurm cluster through its commands: sbatch, squeue, sacct, scontrol, scancel and
// sinfo, from 22.05 on. They are the only interface of Slurm that every site has. Client reads their
// output in formats that have not changed between releases, and not as the tables meant for people.
//
// The zero Client runs the commands with an empty environment. A Client may be used by several
// goroutines at once, if its Run may.
type Client struct {
	// Environ is the environment of the commands, "NAME=value" each, and of the jobs they
	// submit: normally what [Scrub] keeps of the process's own. The commands are looked up
	// in its PATH.
	Environ []string

	// Run runs one command to its end; nil means [Exec]. It is there for tests, and for
	// clusters that are reached through another program.
	Run func(ctx context.Context, c Command) (Output, error)

	clusters string // as On has it
}

// On returns a Client whose commands have --clusters, for which Slurm needs slurmdbd. A job id without a cluster then belongs to that
// cluster. Only sbatch takes several clusters ("a,b"), and chooses one of them. "" is the default cluster.
func (c *Client) On(clusters string) *Client {
	on := *c
	on.clusters = clusters
	return &on
}

// Command is one call of one of Slurm's commands.
type Command struct {
	Name    string // "squeue"
	Args    []string
	Environ []string
}

// Output is what a command that ran has printed, and its exit code, which may be any.
type Output struct {
	Stdout []byte
	Stderr []byte
	Code   int
}

// clientPrefixes are the prefixes of the variables by which a user sets options of the query commands
// (squeue(1), "ENVIRONMENT VARIABLES", and the like). They would filter jobs out or change the format.
var clientPrefixes = []string{"SQUEUE_", "SACCT_", "SCONTROL_", "SCANCEL_", "SINFO_", "SLURM_TIME_FORMAT=", "SLURM_JSON=", "SLURM_YAML="}

// run runs one command. err is nil if it ran, whatever its exit code.
func (c *Client) run(ctx context.Context, name string, args ...string) (Output, error) {
	run := c.Run
	if run == nil {
		run = Exec
	}
	if len(args) == 0 || !strings.HasPrefix(args[0], clustersOption) { // otherwise an id has named another cluster
		args = onCluster(c.clusters, args...)
	}
	out, err := run(ctx, Command{Name: name, Args: args, Environ: c.environ(name)})
	if err != nil {
		return Output{}, fmt.Errorf("run %s: %w", name, err)
	}
	return out, nil
}

// ask runs a command and returns what it printed. If it exits with another code than 0, the error says what its message means.
func (c *Client) ask(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := c.run(ctx, name, args...)
	if err == nil {
		err = failure(name, out)
	}
	return out.Stdout, err
}

// environ returns Environ without the variables that would change the answers. The only such variables of sbatch are
// SBATCH_*, which the caller keeps or scrubs.
func (c *Client) environ(name string) []string {
	if name == "sbatch" {
		return c.Environ
	}
	return slices.DeleteFunc(slices.Clone(c.Environ), func(variable string) bool {
		return slices.ContainsFunc(clientPrefixes, func(prefix string) bool {
			return strings.HasPrefix(variable, prefix)
		})
	})
}

const (
	// maxOutput is how many bytes of each of a command's streams are kept; the rest is read and dropped.
	maxOutput = 4 << 20
	// pipeDelay is how long a child of a command that has ended may keep its streams open.
	pipeDelay = 2 * time.Second
)

// Exec runs a command on this machine, looked up in the PATH of its own environment. It kills the
// command when ctx ends, and then returns the context's error. If the command is not on the PATH, the
// error matches [ErrNoSlurm].
//
// The command dies with this process. Otherwise an sbatch that waits for the controller could submit its job after
// another one has been submitted in its place. The kernel sends the signal when the thread that started the command ends (prctl(2),
// PR_SET_PDEATHSIG), so this goroutine keeps its thread until the command has ended.
func Exec(ctx context.Context, c Command) (Output, error) {
	path, err := lookPath(c.Name, c.Environ)
	if err != nil {
		return Output{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stdout, stderr cappedBuffer
	cmd := exec.CommandContext(ctx, path, c.Args...)
	cmd.Env = c.Environ
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = pipeDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay), errors.As(err, &exit) && exit.Exited():
		return Output{Stdout: stdout.kept, Stderr: stderr.kept, Code: cmd.ProcessState.ExitCode()}, nil
	case ctx.Err() != nil:
		return Output{}, ctx.Err()
	}
	return Output{}, err
}

// lookPath finds an executable file in environ's PATH. It skips relative folders:
// a file in the current folder must not become "sbatch".
func lookPath(name string, environ []string) (string, error) {
	path := ""
	for _, variable := range environ {
		if value, found := strings.CutPrefix(variable, "PATH="); found {
			path = value // as in os/exec, the last one counts
		}
	}
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		if filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&fs.FileMode(0o111) != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%w: %s not found; log in to a node of the cluster that submits jobs, or load the module that provides Slurm "+
		"(without a cluster: \"ddpbatch simulate\")", ErrNoSlurm, name)
}

// cappedBuffer keeps the first maxOutput bytes of what is written to it.
type cappedBuffer struct{ kept []byte }

func (b *cappedBuffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), maxOutput-len(b.kept))]...)
	return len(p), nil
}
