package mpi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"ddpbatch/mpi/transport"
)

// InitLocal makes the Comms of all ranks of a network within this process, by rank. A Comm is for the goroutine that plays its
// rank. Only the Config, the Flight and the Log of cfg are used; each rank's Flight has its number after it, as in "flight.3".
func InitLocal(ctx context.Context, network *transport.Network, cfg InitConfig) ([]*Comm, error) {
	if err := cfg.Config.Validate(); err != nil {
		return nil, fmt.Errorf("init within one process: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Config.timeout())
	defer cancel()
	comms := make([]*Comm, network.Size())
	errs := make([]error, network.Size())
	var tasks sync.WaitGroup
	for rank := range comms {
		tasks.Go(func() {
			cfg := cfg
			if cfg.Flight != "" {
				cfg.Flight += fmt.Sprintf(".%d", rank)
			}
			fabric, err := network.Fabric(rank)
			if err == nil {
				comms[rank], err = join(ctx, fabric, cfg)
			}
			if err != nil {
				errs[rank] = fmt.Errorf("init rank %d within one process: %w", rank, err)
				cancel()
			}
		})
	}
	tasks.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return comms, nil
	}
	for _, c := range comms {
		if c != nil {
			c.Close()
		}
	}
	return nil, err
}
