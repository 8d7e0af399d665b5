package main

import (
	"context"
	"fmt"
	"time"

	bench "ddpbatch/scripts/bench/internal/report"
)

// meeting is many agents that meet and start their workers, each a shell, all on this machine.
func (c cluster) meeting(s shape, times int) part {
	of := fmt.Sprintf("%d agents x %d workers: ", s.nodes, s.workers)
	return part{
		name: "meet", times: times,
		figures: []bench.Figure{
			{What: of + "from the command to the first worker, so all have met", Unit: "ms"},
			{What: of + "to the last worker's first line", Unit: "ms", Goal: "< 5000 (64x8)"},
			{What: of + "from the workers' ends to the command's", Unit: "ms"},
		},
		measure: func(ctx context.Context, _ int) ([]float64, error) {
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
