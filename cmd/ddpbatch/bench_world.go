package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/launch"
)

// benchWorld starts o.ranks ranks of this program on this machine, as `ddpbatch run --standalone` would, and waits
// for their end. What they print goes to out.
func benchWorld(ctx context.Context, e *env, o benchOptions, out io.Writer) error {
	program, err := e.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it as %d ranks: %w", o.ranks, err)
	}
	secret, err := auth.NewSecret()
	if err != nil {
		return err
	}
	defer bearClosedPipes()()
	verdict, err := launch.Run(ctx, launch.AgentConfig{
		World:    launch.World{Count: 1, Host: e.Hostname, Nproc: o.ranks},
		Identity: launch.Identity{RunID: "bench", Attempt: 1, Secret: secret, Version: version},
		Workers:  launch.Workers{Command: append([]string{program}, o.args()...), Env: e.Environ, Dir: e.Dir, Builtin: true},
		Streams:  launch.Streams{Stdout: out, Stderr: e.Err},
		Log:      e.log(),
	})
	switch {
	case err != nil:
		return err
	case verdict.Exit == 0:
		return nil
	case verdict.Cause == "crash" && verdict.Signal == 0:
		return &codeError{code: verdict.Exit} // the rank has said why
	}
	return &codeError{code: verdict.Exit, err: errors.New(verdict.Message)}
}
