package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"ddpbatch/scripts/bench/internal/tools"
)

// prepared is what is launched beside this program.
type prepared struct {
	python string // one that has PyTorch
	torch  string // its version
	codec  string // the benchmarks of the chunks' codec
}

// prepare finds the peers and builds the benchmarks, in dir. It names everything that is missing at once.
func prepare(ctx context.Context, dir string) (p prepared, err error) {
	python, version, err := tools.FindTorch(ctx)
	if err = errors.Join(err, tools.FindZstd()); err != nil {
		return p, fmt.Errorf("%w\n  or measure what needs neither: --figures", err)
	}
	p = prepared{python: python, torch: version, codec: filepath.Join(dir, "chunk.test")}
	return p, tools.Run(ctx, "go", "test", "-c", "-o", p.codec, "./"+codecPackage)
}
