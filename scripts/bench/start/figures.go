package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/processes"

	"golang.org/x/sys/unix"
)

// experiments returns the requested experiments.
func (c cluster) experiments(o options) []paired.Experiment {
	all := []paired.Experiment{c.startMany(o.rendezvous, o.Launches), c.crash(o.Launches), c.idle(o.idle)}
	return slices.DeleteFunc(all, func(e paired.Experiment) bool { return !slices.Contains(o.parts, e.Name) })
}

// startMany measures how many agents meet and start their workers, each a shell, all on this machine.
func (c cluster) startMany(s shape, times int) paired.Experiment {
	of := fmt.Sprintf("%d agents x %d workers: ", s.nodes, s.workers)
	return paired.Experiment{
		Name: "rendezvous", Times: times,
		Figures: []paired.Figure{
			{What: of + "from the command to the first worker, so all have met", Unit: "ms"},
			{What: of + "to the last worker's first line", Unit: "ms", Goal: "< 5000 (64x8)"},
			{What: of + "from the workers' ends to the command's", Unit: "ms"},
		},
		Measure: func(ctx context.Context, _ int) ([]float64, error) {
			j, workers, err := c.start(ctx, s, workerScript)
			if err != nil {
				return nil, err
			}
			defer j.close()
			released := time.Now()
			j.release()
			switch code, err := j.end(ctx); {
			case err != nil:
				return nil, err
			case code != 0:
				return nil, fmt.Errorf("a job whose workers end with 0 ends with %d", code)
			}
			return []float64{workers[0].at, workers[len(workers)-1].at, since(released)}, nil
		},
	}
}

// crash measures what happens when a worker of several nodes is killed: all others must end.
func (c cluster) crash(times int) paired.Experiment {
	s := shape{nodes: 4, workers: 2}
	of := fmt.Sprintf("a worker of %d nodes x %d is killed: ", s.nodes, s.workers)
	return paired.Experiment{
		Name: "crash", Times: times,
		Figures: []paired.Figure{
			{What: of + "to all workers gone", Unit: "ms", Goal: "< 2000"},
			{What: of + "to the command's end", Unit: "ms"},
		},
		Measure: func(ctx context.Context, turn int) ([]float64, error) {
			j, workers, err := c.start(ctx, s, sleepScript)
			if err != nil {
				return nil, err
			}
			defer j.close()
			lives, err := watch(workers)
			defer lives.close()
			if err != nil {
				return nil, err
			}
			killed := time.Now()
			if err := unix.PidfdSendSignal(int(lives[turn%len(lives)].Fd), unix.SIGKILL, nil, 0); err != nil {
				return nil, fmt.Errorf("kill a worker: %w", err)
			}
			if err := lives.awaitEnd(ctx, launchLimit); err != nil {
				return nil, err
			}
			gone := since(killed)
			switch code, err := j.end(ctx); {
			case err != nil:
				return nil, err
			case code == 0:
				return nil, errors.New("a job whose worker was killed ends with 0")
			}
			return []float64{gone, since(killed)}, nil
		},
	}
}

// pidfds are processes, as descriptors that can be read after the processes have ended (pidfd_open(2)).
type pidfds []unix.PollFd

func watch(workers []simulatedWorker) (p pidfds, err error) {
	for _, w := range workers {
		fd, err := unix.PidfdOpen(w.pid, 0)
		if err != nil {
			return p, fmt.Errorf("watch worker %d: %w", w.pid, err)
		}
		p = append(p, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return p, nil
}

// awaitEnd returns when all have ended, after limit, or when ctx is done.
func (p pidfds) awaitEnd(outer context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(outer, limit)
	defer cancel()
	over, isOver, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("wait for a worker's end: %w", err)
	}
	defer over.Close()
	context.AfterFunc(ctx, func() { isOver.Close() }) // ends Poll
	for _, one := range p {
		watched := []unix.PollFd{one, {Fd: int32(over.Fd())}}
		for watched[0].Revents == 0 {
			_, err := unix.Poll(watched, -1)
			switch {
			case err != nil && !errors.Is(err, unix.EINTR):
				return fmt.Errorf("wait for a worker's end: %w", err)
			case err == nil && watched[0].Revents == 0 && outer.Err() != nil:
				return outer.Err()
			case err == nil && watched[0].Revents == 0:
				return fmt.Errorf("workers live %v after one was killed", limit)
			}
		}
	}
	return nil
}

func (p pidfds) close() {
	for _, one := range p {
		unix.Close(int(one.Fd))
	}
}

// idleAfter is the time that agents get to become idle after their workers have started.
const idleAfter = time.Second

// idle measures two agents whose workers sleep. As in every job, the agents tell each other that they are alive, and look for signs that
// the workers hang. The figures are those of the agent that uses more.
func (c cluster) idle(watched time.Duration) paired.Experiment {
	s := shape{nodes: 2, workers: 8}
	of := fmt.Sprintf("an agent of %d sleeping workers: ", s.workers)
	return paired.Experiment{
		Name: "idle", Times: 1,
		Figures: []paired.Figure{
			{What: of + "resident memory", Unit: "MB", Goal: "< 20"},
			{What: of + "its highest", Unit: "MB", Goal: "< 20"},
			{What: of + "of it its own, not of the program's file", Unit: "MB"},
			{What: fmt.Sprintf("%sprocessor time in %v, of a core", of, watched), Unit: "%", Goal: "< 1"},
		},
		Measure: func(ctx context.Context, _ int) ([]float64, error) {
			j, workers, err := c.start(ctx, s, sleepScript)
			if err != nil {
				return nil, err
			}
			defer j.close()
			if err := pause.For(ctx, idleAfter); err != nil {
				return nil, err
			}
			before, err := usagesOf(workers)
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if err := pause.For(ctx, watched); err != nil {
				return nil, err
			}
			after, err := usagesOf(workers)
			if err != nil {
				return nil, err
			}
			took := time.Since(began)
			if len(after) != s.nodes {
				return nil, fmt.Errorf("there are %d agents, want %d", len(after), s.nodes)
			}
			most := make([]float64, 4)
			for agent, u := range after {
				share := 100 * (u.cpu - before[agent].cpu).Seconds() / took.Seconds()
				for i, x := range []float64{float64(u.Resident) / 1e6, float64(u.Highest) / 1e6, float64(u.Own) / 1e6, share} {
					most[i] = max(most[i], x)
				}
			}
			return most, nil
		},
	}
}

// agentUsage is what an agent uses.
type agentUsage struct {
	processes.Memory
	cpu time.Duration
}

// usagesOf returns the usage of the workers' agents.
func usagesOf(workers []simulatedWorker) (all map[int]agentUsage, err error) {
	all = map[int]agentUsage{}
	for _, w := range workers {
		if _, ok := all[w.agent]; ok {
			continue
		}
		var u agentUsage
		if u.Memory, err = processes.MemoryOf(w.agent); err != nil {
			return nil, err
		}
		if u.cpu, err = processes.CPUTime(w.agent); err != nil {
			return nil, err
		}
		all[w.agent] = u
	}
	return all, nil
}
