package trainer

import (
	"errors"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
)

// The rank whose outputs overflow looks for the layer by itself, while the other one is in the middle of a step in which both add up
// what batch normalization needs: neither waits for the other in vain.
func TestOneRankDivergesWithStatisticsOfAll(t *testing.T) {
	dir, cfg := imageJob(t)
	cfg.DDP.SyncBatchNorm = true
	wait := mpi.DefaultConfig()
	wait.Timeout = patience // for which a rank that waits in vain would
	comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(2), mpi.InitConfig{Config: wait})
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range testkit.Each(2, func(rank int) error {
		defer comms[rank].Close()
		tr := newTrainer(cfg, Env{Comm: comms[rank], WorkDir: dir})
		defer tr.close()
		if err := tr.setUp(t.Context()); err != nil {
			return err
		}
		if rank == 1 {
			for _, head := range tr.params[len(tr.params)-2:] { // the last layer's, on which no statistics depend
				for j := range head.Value {
					head.Value[j] = 3e38
				}
			}
		}
		_, err := tr.run(t.Context())
		return err
	}) {
		want := "training diverged at step 1 (epoch 0): the loss is NaN, as layer"
		if !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v, want ErrDiverged with %q", i, err, want)
		}
		if errors.Is(err, ErrElsewhere) != (i == 0) {
			t.Errorf("rank %d: %v, and rank 1 is to blame", i, err)
		}
	}
}
