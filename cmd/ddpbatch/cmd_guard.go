package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/proc"
)

// newGuardCommand returns the command that an agent's guard executes after the agent has ended. It is hidden because users do not type it.
func newGuardCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:      proc.GuardCommand,
		Usage:     "kill what an agent has started, when standard input ends (for the agent)",
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
