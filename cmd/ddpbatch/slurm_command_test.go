package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// commandLimit is much longer than any command of these tests takes, also on a busy machine.
const commandLimit = 2 * time.Minute

// output is how a command ended, and its output.
type output struct {
	code           int
	stdout, stderr string
}

func (o output) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", o.code, o.stdout, o.stderr)
}

// run runs a command in the test's folder and waits for its end. If Slurm's own daemon has failed an srun, it runs it once more: this
// happened once in some hundred runs of these tests on Slurm 22.05, on a machine that was busy.
func (c *cluster) run(name string, args ...string) output {
	c.t.Helper()
	out := c.start(name, args...).end(commandLimit)
	if (name == "srun" || slices.Contains(args, "srun")) && strings.Contains(out.stderr, "io error with slurmstepd") {
		c.t.Logf("again, as Slurm lost its own connection: %s %s: %v", name, strings.Join(args, " "), out)
		out = c.start(name, args...).end(commandLimit)
	}
	return out
}

// ok runs a command that must succeed.
func (c *cluster) ok(name string, args ...string) output {
	c.t.Helper()
	return c.exits(0, name, args...)
}

// exits runs a command that must end with the given code.
func (c *cluster) exits(code int, name string, args ...string) output {
	c.t.Helper()
	out := c.run(name, args...)
	if out.code != code {
		c.t.Fatalf("%s %s: want exit code %d, got %v", name, strings.Join(args, " "), code, out)
	}
	return out
}

// process is a command that runs while the test continues.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr lockedBuffer
	done           chan struct{} // closed when it has ended
	err            error         // from Wait
}

// start starts a command in its own process group, which the test kills at its end at the latest.
func (c *cluster) start(name string, args ...string) *process {
	c.t.Helper()
	p := &process{t: c.t, cmd: c.command(context.Background(), name, args...), done: make(chan struct{})}
	p.cmd.Dir = c.dir
	p.cmd.Env = append(p.cmd.Env, c.env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = 10 * time.Second // for a child that keeps the pipes open
	if err := p.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	c.t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
	})
	return p
}

// signal signals the process and its children if it has not ended.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, sig) // an error means that it has ended meanwhile
	}
}

// end waits until the process ends.
func (p *process) end(limit time.Duration) output {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("%s did not end within %v; so far: %v", p.cmd, limit, p.output())
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		p.t.Fatalf("%s: %v", p.cmd, p.err)
	}
	return p.output()
}

func (p *process) output() output {
	out := output{code: -1, stdout: p.stdout.String(), stderr: p.stderr.String()}
	select {
	case <-p.done:
		out.code = p.cmd.ProcessState.ExitCode()
	default:
	}
	return out
}

// lockedBuffer can be read while it is being written.
type lockedBuffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}
