package main

import (
	"context"
	"fmt"
	"time"

	"ddpbatch/internal/pause"
	bench "ddpbatch/scripts/bench/internal/report"
)

// settleTime is what agents have to come to rest once their workers are there.
const settleTime = time.Second

// idle is two agents whose workers sleep: they tell each other that they live, and look for signs that the workers hang, as in every job.
// Figures are of the one that uses more.
func (c cluster) idle(watched time.Duration) part {
	s := shape{nodes: 2, workers: 8}
	of := fmt.Sprintf("an agent of %d sleeping workers: ", s.workers)
	return part{
		name: "idle", times: 1,
		figures: []bench.Figure{
			{What: of + "resident memory", Unit: "MB", Goal: "< 20"},
			{What: of + "its highest", Unit: "MB", Goal: "< 20"},
			{What: of + "of it its own, not of the program's file", Unit: "MB"},
			{What: fmt.Sprintf("%sprocessor time in %v, of a core", of, watched), Unit: "%", Goal: "< 1"},
		},
		measure: func(ctx context.Context, _ int) ([]float64, error) {
			j, workers, err := c.start(ctx, s, sleepScript)
			if err != nil {
				return nil, err
			}
			defer j.close()
			if err := pause.For(ctx, settleTime); err != nil {
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
				for i, x := range []float64{u.resident, u.highest, u.own, share} {
					most[i] = max(most[i], x)
				}
			}
			return most, nil
		},
	}
}
