package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/placement"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

func newEnvCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "env",
		Usage:       "print the variables of a rank here: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...",
		Description: example(`srun -n8 bash -c 'eval "$(ddpbatch env)"; exec python3 train.py'`, "ddpbatch env --format json"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "format `NAME`: shell, json or dotenv", Value: "shell"},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 0, 0); err != nil {
				return err
			}
			format := c.String("format")
			if c.Bool("json") {
				format = "json"
			}
			return runEnv(e, format)
		},
	}
}

func runEnv(e *env, format string) error {
	alloc, err := slurm.FromEnviron(e.lookup)
	if errors.Is(err, slurm.ErrNotInSlurm) {
		return &usage.Error{Message: "this is not a Slurm job",
			Hint: `call it in a task: srun -n4 bash -c 'eval "$(ddpbatch env)"; ...'`}
	}
	if err == nil {
		err = alloc.CheckLayout()
	}
	if err != nil {
		return usage.Errorf("%v", err)
	}
	if !alloc.InStep() && (alloc.Tasks > 1 || len(alloc.Nodes) > 1) {
		return &usage.Error{
			Message: fmt.Sprintf("this is the batch script or shell of a job on %s, not one of its tasks: every rank would be 0",
				text.Plural(len(alloc.Nodes), "node")),
			Hint: `call it in a task: srun bash -c 'eval "$(ddpbatch env)"; ...'`,
		}
	}
	shared := launch.AgentConfig{
		Network:  launch.Network{MasterAddr: alloc.Address(0)},
		Identity: launch.Identity{RunID: alloc.Key(), Restarts: alloc.Restarts},
	}
	port := launch.Ports(alloc.Key()+"/workers", 1)[0]
	vars := shared.RankEnviron(placement.TaskRanks(alloc), port)
	return printEnv(e, vars, format)
}

func printEnv(e *env, vars []string, format string) error {
	switch format {
	case "shell":
		for _, v := range vars {
			fmt.Fprintln(e.Out, "export "+slurm.ShellAssign(v))
		}
	case "dotenv":
		for _, v := range vars {
			name, value, _ := strings.Cut(v, "=")
			fmt.Fprintf(e.Out, "%s=%s\n", name, strconv.Quote(value))
		}
	case "json":
		object := map[string]string{}
		for _, v := range vars {
			name, value, _ := strings.Cut(v, "=")
			object[name] = value
		}
		return printJSON(e, object)
	default:
		return usage.Errorf("--format is %q; it must be shell, json or dotenv", format)
	}
	return nil
}
