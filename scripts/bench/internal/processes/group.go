package processes

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
)

const (
	// endGrace is how long a launch may take to end after it has said that it is done.
	endGrace = 2 * time.Second

	// markVariable finds the processes of a launch that have left its process groups, as those of MPI launchers do.
	markVariable = "DDPBATCH_BENCH_LAUNCH"
)

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
		cmd.Env = append(append(slices.DeleteFunc(os.Environ(), placing), cmd.Env...), g.mark)
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

// FreePort is one that was free a moment ago: torch cannot be handed a socket.
func FreePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "29500"
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
