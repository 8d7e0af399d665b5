package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

// A worker of a job says that it has started, and waits until it is released.
const (
	workerScript = `exec 3<"$1"; echo worker $$ $PPID; read -r end <&3; exit 0`
	sleepScript  = `echo worker $$ $PPID; exec sleep 1000`
)

// simulatedJob is a job of a pretend cluster: each node has an agent in its own process, with its workers.
type simulatedJob struct {
	shape    shape
	dir      string
	gate     *os.File // releases the workers
	group    *processes.Group
	started  time.Time
	received chan simulatedWorker // in the order in which they come
	errors   *bytes.Buffer
}

// simulatedWorker is a worker that has said that it has started.
type simulatedWorker struct {
	pid, agent int
	at         float64 // milliseconds since the command
}

// cluster is a pretend cluster.
type cluster struct {
	ddpbatch string // the program
	below    string // a directory for its jobs
}

// start starts a job and returns when all of its workers have started, in the order in which they came. If it succeeds, the caller must
// call close.
func (c cluster) start(ctx context.Context, s shape, script string) (*simulatedJob, []simulatedWorker, error) {
	j, err := c.submit(s, script)
	if err != nil {
		return nil, nil, err
	}
	all, err := j.workers(ctx)
	if err != nil {
		j.close()
	}
	return j, all, err
}

func (c cluster) submit(s shape, script string) (j *simulatedJob, err error) {
	j = &simulatedJob{shape: s, received: make(chan simulatedWorker, s.nodes*s.workers), errors: new(bytes.Buffer)}
	if j.dir, err = os.MkdirTemp(c.below, "job-"); err != nil {
		return nil, fmt.Errorf("make a folder for a job: %w", err)
	}
	path := filepath.Join(j.dir, "gate")
	if err := exec.Command("mkfifo", path).Run(); err != nil {
		return nil, fmt.Errorf("make a pipe for a job: %w", err)
	}
	if j.gate, err = os.OpenFile(path, os.O_RDWR, 0); err != nil { // also for reading, so that nobody waits for the other end
		return nil, fmt.Errorf("open a pipe for a job: %w", err)
	}
	cmd := exec.Command(c.ddpbatch, "simulate", "--nodes", strconv.Itoa(s.nodes), "--nproc-per-node", strconv.Itoa(s.workers), "--",
		"/bin/sh", "-c", script, "sh", path)
	cmd.Dir, cmd.Stderr = j.dir, j.errors
	cmd.Stdout = &processes.Lines{Receive: j.receive}
	j.started = time.Now()
	if j.group, err = processes.Start(cmd); err != nil {
		j.gate.Close()
		return nil, fmt.Errorf("start a job: %w", err)
	}
	return j, nil
}

func (j *simulatedJob) receive(line string) {
	w, ok := parseWorker(unlabelled(line))
	if !ok {
		return
	}
	w.at = since(j.started)
	select {
	case j.received <- w:
	default: // more than expected
	}
}

// parseWorker parses `worker PID AGENT`.
func parseWorker(line string) (w simulatedWorker, ok bool) {
	n, err := fmt.Sscanf(line, "worker %d %d", &w.pid, &w.agent)
	return w, n == 2 && err == nil && w.pid > 1 && w.agent > 1
}

func (j *simulatedJob) workers(ctx context.Context) ([]simulatedWorker, error) {
	ctx, cancel := context.WithTimeout(ctx, launchLimit)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.group.Await(ctx, nil)
	}()
	var all []simulatedWorker
	for len(all) < j.shape.nodes*j.shape.workers {
		select {
		case w := <-j.received:
			all = append(all, w)
		case <-ended:
			if ctx.Err() != nil {
				return nil, fmt.Errorf("a job of %v has %d workers: %w", j.shape, len(all), ctx.Err())
			}
			return nil, fmt.Errorf("a job of %v ended early: %s", j.shape, tools.LastLine(j.errors.String()))
		}
	}
	return all, nil
}

// release lets the workers end.
func (j *simulatedJob) release() { j.gate.Close() }

// end returns when the command has ended by itself, with its exit code.
func (j *simulatedJob) end(ctx context.Context) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, launchLimit)
	defer cancel()
	j.group.Await(ctx, nil)
	if ctx.Err() != nil {
		return 0, fmt.Errorf("a job of %v does not end: %w", j.shape, ctx.Err())
	}
	return j.group.Code(0), nil
}

// close ends the job and removes everything.
func (j *simulatedJob) close() {
	j.group.Kill()
	j.gate.Close()
	os.RemoveAll(j.dir)
}
