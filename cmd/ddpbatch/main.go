// Command ddpbatch takes a data-parallel training job onto a Slurm cluster and
// through everything that happens there. See docs/cli/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ddpbatch/mpi/launch"
)

func main() {
	release := holdSignals(os.Args) // before anything else
	ctx, stop := withSignals(context.Background(), os.Stderr)
	e := osEnv()
	e.Release = release
	code := Main(ctx, e, os.Args)
	stop()
	os.Exit(code)
}

// Main runs one command line and returns its exit code.
func Main(ctx context.Context, e *env, args []string) int {
	app := newApp(e)
	err := app.RunContext(ctx, permute(app, args))
	var stopped launch.SignalError
	switch {
	case err == nil:
		err = e.lostOutput()
	case errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &stopped):
		err = fmt.Errorf("%w: %w", stopped, err)
	}
	return report(e, err)
}
