package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// scenarioVariable makes the test binary run as one rank of a scenario.
const scenarioVariable = "MPI_TEST_SCENARIO"

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioVariable); name != "" {
		if err := scenarios[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

var scenarios = map[string]func() error{
	"sums":   func() error { return rankMain(nil) },
	"exit_7": func() error { return rankMain(func() { os.Exit(7) }) },
	"killed": func() error { return rankMain(func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }) },
	"hangs":  func() error { return rankMain(func() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) }) },
}

const (
	victim      = 2
	rounds      = 20
	processes   = 4
	processTime = 5 * time.Second // also to start all processes and meet, on a loaded machine
)

// sick is a mesh whose process falls ill after some frames.
type sick struct {
	transport.Mesh
	frames atomic.Int32
	fall   func()
}

func (s *sick) Send(ctx context.Context, to int, payload []byte) error {
	if s.frames.Add(-1) == 0 {
		s.fall()
	}
	return s.Mesh.Send(ctx, to, payload)
}

// rankMain is a rank that sums large buffers. fall happens to the victim in the middle.
func rankMain(fall func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	cfg := DefaultConfig()
	cfg.Timeout = processTime
	c, err := InitEnv(ctx, os.LookupEnv, cfg, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if fall != nil && c.Rank() == victim {
		s := &sick{Mesh: c.mesh, fall: fall}
		s.frames.Store(50)
		c.mesh = s
	}
	buf := make([]float64, 1<<18)
	for round := range rounds {
		for i := range buf {
			buf[i] = float64(c.Rank() + i%7 + round)
		}
		if err := AllReduce(ctx, c, buf, Sum); err != nil {
			return err
		}
		for i, x := range buf {
			if want := float64(processes*(processes-1)/2 + processes*(i%7+round)); x != want {
				return fmt.Errorf("element %d is %v, want %v", i, x, want)
			}
		}
	}
	fmt.Println("sum", buf[6])
	return nil
}

// rankProcess is one rank's process, and what it printed.
type rankProcess struct {
	cmd         *exec.Cmd
	out, errOut bytes.Buffer
	ended       time.Time
	err         error
}

// runProcesses runs a scenario and returns its ranks, all ended.
func runProcesses(t *testing.T, scenario string) []*rankProcess {
	t.Helper()
	port := freePort(t, "127.0.0.1")
	ranks := make([]*rankProcess, processes)
	for rank := range ranks {
		p := &rankProcess{cmd: exec.Command(os.Args[0])}
		p.cmd.Env = append(os.Environ(), scenarioVariable+"="+scenario,
			"RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(processes), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port,
			"DDPBATCH_SECRET="+secretHex)
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errOut
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer p.cmd.Process.Kill()
		ranks[rank] = p
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		testkit.Each(processes, func(rank int) error {
			p := ranks[rank]
			if scenario == "hangs" && rank == victim {
				return nil // it will not end
			}
			p.err = p.cmd.Wait()
			p.ended = time.Now()
			return nil
		})
	}()
	select {
	case <-done:
	case <-time.After(2 * testkit.Patience):
		t.Fatal("the ranks do not end")
	}
	if scenario == "hangs" {
		ranks[victim].cmd.Process.Kill()
		ranks[victim].err = ranks[victim].cmd.Wait()
	}
	return ranks
}

func TestProcesses(t *testing.T) {
	for rank, p := range runProcesses(t, "sums") {
		if p.err != nil || p.out.String() != "sum 106\n" { // 0+1+2+3 + 4*(6+19)
			t.Errorf("rank %d: %v; printed %q, %q", rank, p.err, p.out.String(), p.errOut.String())
		}
	}
}

// A process that dies in the middle of a collective ends the others at once, and all name it.
func TestProcessDies(t *testing.T) {
	for scenario, code := range map[string]int{"exit_7": 7, "killed": -1} {
		t.Run(scenario, func(t *testing.T) {
			ranks := runProcesses(t, scenario)
			for rank, p := range ranks {
				var exit *exec.ExitError
				if !errors.As(p.err, &exit) {
					t.Errorf("rank %d: %v", rank, p.err)
					continue
				}
				if rank == victim {
					if exit.ExitCode() != code {
						t.Errorf("rank %d ended with %v, want %d", rank, exit, code)
					}
					continue
				}
				if text := p.errOut.String(); exit.ExitCode() != 1 || !strings.Contains(text, "rank 2: connection lost") {
					t.Errorf("rank %d: %v; said %q", rank, exit, text)
				}
				if took := p.ended.Sub(ranks[victim].ended); took >= processTime {
					t.Errorf("rank %d ended %v after rank %d", rank, took, victim)
				}
			}
		})
	}
}

// A process that is stopped makes no progress: the others end after the time-out. Which rank
// they name depends on whose time-out is first, as all of them wait for a neighbour.
func TestProcessHangs(t *testing.T) {
	waited := regexp.MustCompile(`all_reduce #\d+ float64 x 262144 sum: rank [0-3]: no progress for 5s: `)
	for rank, p := range runProcesses(t, "hangs") {
		if text := p.errOut.String(); rank != victim && !waited.MatchString(text) {
			t.Errorf("rank %d: %v; said %q", rank, p.err, text)
		}
	}
}
