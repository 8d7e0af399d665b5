package trainer

import (
	"context"
	"fmt"

	"ddpbatch/mpi"
)

// layout is where a rank stands among the others. Without a pipeline every rank is a replica of the model. With one of K stages,
// K ranks that follow each other are one: of rank r that is replica r / K and stage r mod K.
type layout struct {
	peers    *mpi.Comm // the ranks that train the same layers on other rows; rank i of it belongs to replica i
	line     *mpi.Comm // the ranks of the rank's pipeline; nil without one
	replica  int       // which of
	replicas int       // copies of the model this rank belongs to
}

func layoutFits(cfg Config, world int) error {
	if world%cfg.Pipeline != 0 {
		return fmt.Errorf("%d ranks do not divide into pipelines of %d: start a multiple of train.pipeline", world, cfg.Pipeline)
	}
	return nil
}

// newLayout is collective.
func newLayout(ctx context.Context, comm *mpi.Comm, cfg Config) (layout, error) {
	stages := cfg.Pipeline
	l := layout{peers: comm, replica: comm.Rank() / stages, replicas: comm.Size() / stages}
	if stages == 1 {
		return l, nil
	}
	var err error
	if l.peers, err = comm.Split(ctx, comm.Rank()%stages, comm.Rank()); err != nil {
		return l, fmt.Errorf("group the ranks of a pipeline stage: %w", err)
	}
	if l.line, err = comm.Split(ctx, l.replica, comm.Rank()); err != nil {
		return l, fmt.Errorf("group the ranks of a pipeline: %w", err)
	}
	return l, nil
}
