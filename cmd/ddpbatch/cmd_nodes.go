package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// maxHosts limits the output of `nodes expand`; it is Slurm's own limit for one range.
const maxHosts = 1 << 16

func newNodesCommand(e *env) *cli.Command {
	sub := func(name, what, args, sample string, action func(words []string, asJSON bool) error) *cli.Command {
		return &cli.Command{
			Name: name, Usage: what, ArgsUsage: args, Description: example("ddpbatch nodes " + name + " " + sample),
			Flags: []cli.Flag{jsonFlag()},
			Action: func(c *cli.Context) error {
				if err := checkWords(c, 1, -1); err != nil {
					return err
				}
				return action(c.Args().Slice(), c.Bool("json"))
			},
		}
	}
	return &cli.Command{
		Name:        "nodes",
		Usage:       "expand, fold and count Slurm's host lists",
		Description: example("ddpbatch nodes expand 'gpu[01-03,7],login'", "ddpbatch nodes fold gpu01 gpu02 gpu03"),
		Subcommands: []*cli.Command{
			sub("expand", "one name per line", "LIST...", "'n[01-03]'", func(words []string, asJSON bool) error {
				hosts, err := expandAll(words)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(e, hosts)
				}
				for _, h := range hosts {
					fmt.Fprintln(e.Out, h)
				}
				return nil
			}),
			sub("fold", "the shortest list, in the given order", "NAME...", "n01 n02 n03", func(words []string, asJSON bool) error {
				hosts, err := expandAll(words)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(e, slurm.FoldHostlist(hosts))
				}
				fmt.Fprintln(e.Out, slurm.FoldHostlist(hosts))
				return nil
			}),
			sub("count", "the number of names", "LIST...", "'n[01-03]'", func(words []string, asJSON bool) error {
				total := 0
				for _, w := range words {
					n, err := slurm.CountHosts(w)
					if err != nil {
						return usage.Errorf("%v", err)
					}
					total += n
				}
				if asJSON {
					return printJSON(e, total)
				}
				fmt.Fprintln(e.Out, total)
				return nil
			}),
		},
	}
}

func expandAll(words []string) ([]string, error) {
	hosts := []string{}
	for _, w := range words {
		more, err := slurm.ExpandHostlist(w, maxHosts-len(hosts))
		if err != nil {
			return nil, usage.Errorf("%v", err)
		}
		hosts = append(hosts, more...)
	}
	return hosts, nil
}
