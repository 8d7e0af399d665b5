package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	bench "ddpbatch/scripts/bench/internal/report"
)

// crash is a worker of several nodes that is killed: all others have to end.
func (c cluster) crash(times int) part {
	s := shape{nodes: 4, workers: 2}
	of := fmt.Sprintf("a worker of %d nodes x %d is killed: ", s.nodes, s.workers)
	return part{
		name: "crash", times: times,
		figures: []bench.Figure{
			{What: of + "to all workers gone", Unit: "ms", Goal: "< 2000"},
			{What: of + "to the command's end", Unit: "ms"},
		},
		measure: func(ctx context.Context, turn int) ([]float64, error) {
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
			if err := lives.awaitEnd(); err != nil {
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

// lives are processes by descriptors that can be read once they have ended (pidfd_open(2)).
type lives []unix.PollFd

func watch(workers []worker) (l lives, err error) {
	for _, w := range workers {
		fd, err := unix.PidfdOpen(w.pid, 0)
		if err != nil {
			return l, fmt.Errorf("watch worker %d: %w", w.pid, err)
		}
		l = append(l, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return l, nil
}

// awaitEnd returns when all have ended.
func (l lives) awaitEnd() error {
	deadline := time.Now().Add(launchLimit)
	for _, one := range l {
		for {
			n, err := unix.Poll([]unix.PollFd{one}, int(time.Until(deadline).Milliseconds()))
			if n == 1 {
				break
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("wait for a worker's end: %w", err)
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("workers live %v after one was killed", launchLimit)
			}
		}
	}
	return nil
}

func (l lives) close() {
	for _, one := range l {
		unix.Close(int(one.Fd))
	}
}
