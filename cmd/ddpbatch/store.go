package main

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/store"
)

func newStoreCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:  "store",
		Usage: "serve a rendezvous store, or look into one",
		Description: example("ddpbatch store serve --port 29400", "ddpbatch store list --addr node1:29400",
			"ddpbatch store get rank/0 --addr node1:29400"),
		Subcommands: []*cli.Command{
			newStoreServeCommand(e), newStoreGetCommand(e), newStoreSetCommand(e), newStoreAddCommand(e),
			newStoreWaitCommand(e), newStoreListCommand(e),
		},
	}
}

func newStoreServeCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "serve",
		Usage:       "serve an empty store until INT or TERM; prints its address",
		Description: example("ddpbatch store serve --port 29400", "ddpbatch store serve --port 29500 --torch --bind 10.0.0.1"),
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "port", Usage: "`P`; 0 takes one that is free", DefaultText: "none"},
			&cli.StringFlag{Name: "bind", Usage: "the `ADDR` of this machine to listen at; 0.0.0.0 or :: for all of them", Value: "127.0.0.1"},
			&cli.BoolFlag{Name: "torch", Usage: "serve PyTorch's TCPStore clients, too, who prove nothing: whoever reaches ADDR may read and change the store"},
		}, bindingFlags()...),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &usage.Error{
					Message: fmt.Sprintf("store serve takes no arguments, and not %q", c.Args().First()),
					Hint:    `try "ddpbatch store serve -h"`,
				}
			}
			switch port := c.Int("port"); {
			case !c.IsSet("port"):
				return usage.Errorf("store serve needs --port; 0 takes one that is free")
			case port < 0 || port > 65535:
				return usage.Errorf("--port is %d; it must be 0 to 65535", port)
			case c.String("bind") == "":
				return usage.Errorf("--bind is empty; all addresses of this machine are 0.0.0.0 or ::")
			}
			secret, binding, err := storeBindingOf(e, c)
			if err != nil {
				return err
			}
			return serveStore(c, e, store.ServerConfig{Secret: secret, Binding: binding, Torch: c.Bool("torch"), Log: e.log()})
		},
	}
}

func serveStore(c *cli.Context, e *env, cfg store.ServerConfig) error {
	var lc net.ListenConfig
	l, err := lc.Listen(c.Context, "tcp", net.JoinHostPort(c.String("bind"), strconv.Itoa(c.Int("port"))))
	if err != nil {
		return fmt.Errorf("serve a store: %w", err)
	}
	server := store.Serve(l, cfg)
	fmt.Fprintln(e.Out, server.Addr())
	<-c.Context.Done() // being told to stop is how it ends well
	return server.Close()
}

// bindingFlags say which run's store it is: both ends must say the same.
func bindingFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "run", Usage: "the run's `ID`", DefaultText: "DDPBATCH_RUN_ID, else TORCHELASTIC_RUN_ID, else none"},
		&cli.IntFlag{Name: "attempt", Usage: "the run's attempt, `N`", DefaultText: "DDPBATCH_ATTEMPT, else 1"},
	}
}

// clientFlags say where the store is, and how long to wait.
func clientFlags(more ...cli.Flag) []cli.Flag {
	return append(append(more,
		&cli.StringFlag{Name: "addr", Usage: "where the store is, `HOST:PORT`", DefaultText: "DDPBATCH_STORE"},
		&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`, with exit code 124", Value: 10 * time.Second},
	), bindingFlags()...)
}

// storeBindingOf is what the ends of a connection prove to each other.
func storeBindingOf(e *env, c *cli.Context) (auth.Secret, auth.Binding, error) {
	binding := auth.Binding{Run: c.String("run"), Attempt: c.Int("attempt"), Role: "store"}
	binding.Run = cmp.Or(binding.Run, runIDOf(e))
	if !c.IsSet("attempt") {
		binding.Attempt = 1
		if text := e.get("DDPBATCH_ATTEMPT"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				return auth.Secret{}, binding, usage.Errorf("DDPBATCH_ATTEMPT is %q; it must be a number", text)
			}
			binding.Attempt = n
		}
	}
	if binding.Attempt < 1 {
		return auth.Secret{}, binding, usage.Errorf("the attempt is %d; attempts count from 1", binding.Attempt)
	}
	secret, err := runSecret(e, binding.Run)
	return secret, binding, err
}
