package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/proc"
)

// newGuardCommand is what an agent's guard becomes when the agent is gone; it is hidden, as nobody types it.
func newGuardCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      proc.GuardCommand,
		Usage:     "kill what an agent has started, when standard input ends (the agent's own)",
		ArgsUsage: "ORDER...",
		Hidden:    true,
		Action: func(c *cli.Context) error {
			swept, err := proc.ServeGuard(c.Context, c.Args().Slice(), e.In)
			if len(swept.Left) > 0 {
				err = errors.Join(err, fmt.Errorf("processes %v are left", swept.Left))
			}
			return err
		},
	}
}
