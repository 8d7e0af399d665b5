package trainer

import (
	"strings"

	"ddpbatch/trainer/blas"
	"ddpbatch/trainer/nn"
)

// openBLAS finds what computes the matrix products.
func (t *trainer) openBLAS() error {
	threads := max(1, t.env.Threads)
	if t.cfg.Mode == "dp" {
		threads = 1 // of each replica
	}
	library, info, err := blas.Open(blas.Config{Library: t.libraryPath(), Threads: threads, Dirs: t.env.LibraryDirs})
	if err != nil {
		return err
	}
	how := "float32"
	if t.cfg.Precision != "float32" {
		library, how = blas.Narrow(library, blas.Precision(t.cfg.Precision))
	}
	t.blas = library
	if t.env.Comm.Rank() == 0 {
		t.print("rank 0 | matrix products by %s | %s\n", info, how)
		if info.Advice != "" {
			t.log.Warn(info.Advice)
		}
	}
	return nil
}

// libraryPath is what blas names: a path is relative to the job's workdir, where it has a slash; else the loader knows it.
func (t *trainer) libraryPath() string {
	if strings.Contains(t.cfg.BLAS, "/") {
		return below(t.env.WorkDir, t.cfg.BLAS)
	}
	return t.cfg.BLAS
}

// newEngine makes what computes this rank's part of the gradients.
func (t *trainer) newEngine() (engine, error) {
	var sums nn.Reducer
	if t.batchNorm != nil {
		sums = t.batchNorm
	}
	copies := 1
	switch {
	case t.cfg.Mode == "dp":
		copies = t.replicas()
	case t.cfg.Pipeline > 1:
		copies = t.microBatches()
	}
	var replicas []*replica
	for range copies {
		layers, err := newModel(t.cfg.Model, t.train.Spec(), t.cfg.Seed, sums)
		if err != nil {
			return nil, err
		}
		replicas = append(replicas, &replica{layers: layers, loss: newLoss(t.cfg.Loss), inputs: t.train.Spec().Inputs})
	}
	switch {
	case t.cfg.Mode == "dp":
		return newDataParallel(replicas), nil
	case t.cfg.Pipeline == 1:
		return replicas[0], nil
	}
	layers := replicas[0].layers
	bounds := boundaries(layers, t.train.Spec().Inputs)
	at, err := cuts(layers, bounds, t.cfg.Pipeline)
	if err != nil {
		return nil, err
	}
	return newPipeline(t.layout.line, replicas, at, bounds), nil
}

// replicas is how many each rank has in mode "dp".
func (t *trainer) replicas() int {
	if t.cfg.Replicas > 0 {
		return t.cfg.Replicas
	}
	return max(1, t.env.Threads)
}

// microBatches is how many parts a pipeline cuts a batch into.
func (t *trainer) microBatches() int {
	if t.cfg.MicroBatches > 0 {
		return t.cfg.MicroBatches
	}
	return t.cfg.Pipeline
}
