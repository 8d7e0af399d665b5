package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/store"
)

func newStoreCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:  "store",
		Usage: "serve a rendezvous store, or use one",
		Description: example("ddpbatch store serve --port 29400", "ddpbatch store list --addr node1:29400",
			"ddpbatch store get rank/0 --addr node1:29400"),
		Subcommands: append([]*cli.Command{newStoreServeCommand(e)}, storeClientCommands(e)...),
	}
}

func newStoreServeCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "serve",
		Usage:       "serve an empty store until INT or TERM; prints its address",
		Description: example("ddpbatch store serve --port 29400", "ddpbatch store serve --port 29500 --torch --bind 10.0.0.1"),
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "port", Usage: "port `P`; 0 chooses a free one", DefaultText: "none"},
			&cli.StringFlag{Name: "bind", Usage: "the `ADDR` of this machine to listen at; 0.0.0.0 or :: for all of them",
				Value: "127.0.0.1"},
			&cli.BoolFlag{Name: "torch",
				Usage: "also serve PyTorch's TCPStore clients, which do not authenticate: " +
					"everyone who can reach ADDR may read and change the store"},
		}, bindingFlags()...),
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 0, 0); err != nil {
				return err
			}
			switch port := c.Int("port"); {
			case !c.IsSet("port"):
				return usage.Errorf("store serve needs --port; 0 chooses a free port")
			case port < 0 || port > 65535:
				return usage.Errorf("--port is %d; it must be 0 to 65535", port)
			case c.String("bind") == "":
				return usage.Errorf("--bind is empty; for all addresses of this machine use 0.0.0.0 or ::")
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
	<-c.Context.Done() // being told to stop is a success
	return server.Close()
}

// bindingFlags name the run of the store. Both ends must agree on them.
func bindingFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "run", Usage: "the run's `ID`", DefaultText: "DDPBATCH_RUN_ID, else TORCHELASTIC_RUN_ID, else none"},
		&cli.IntFlag{Name: "attempt", Usage: "the run's attempt, `N`", DefaultText: "DDPBATCH_ATTEMPT, else 1"},
	}
}

// clientFlags name the store, and how long to wait.
func clientFlags(more ...cli.Flag) []cli.Flag {
	return append(append(more,
		&cli.StringFlag{Name: "addr", Usage: "the store's address, `HOST:PORT`", DefaultText: "DDPBATCH_STORE"},
		&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`, with exit code 124", Value: 10 * time.Second},
	), bindingFlags()...)
}

// storeBindingOf returns what the ends of a connection prove to each other.
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

// storeClientCommands returns the commands that read or change a store.
func storeClientCommands(e *env) []*cli.Command {
	return []*cli.Command{
		{
			Name: "get", Usage: "wait for keys and print their values, each with a newline after it", ArgsUsage: "KEY...",
			Description: example("ddpbatch store get rank/0 --addr node1:29400"), Flags: clientFlags(jsonFlag()),
			Action: storeAction(e, 1, -1, func(ctx context.Context, c *cli.Context, s *store.Client, keys []string) error {
				values, err := s.MultiGet(ctx, keys...)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					return printJSON(e, storeItems(keys, values))
				}
				for _, value := range values {
					fmt.Fprintln(e.Out, shownValue(e, value))
				}
				return nil
			}),
		},
		{
			Name: "set", Usage: "set a key", ArgsUsage: "KEY VALUE",
			Description: example("ddpbatch store set go 1 --addr node1:29400"), Flags: clientFlags(),
			Action: storeAction(e, 2, 2, func(ctx context.Context, _ *cli.Context, s *store.Client, words []string) error {
				return s.Set(ctx, words[0], []byte(words[1]))
			}),
		},
		{
			Name: "add", Usage: "add N, or 1, to the number at a key, and print the sum", ArgsUsage: "KEY [N]",
			Description: example("ddpbatch store add count 5 --addr node1:29400", "ddpbatch store add --addr node1:29400 -- count -5"),
			Flags:       clientFlags(),
			Action: storeAction(e, 1, 2, func(ctx context.Context, _ *cli.Context, s *store.Client, words []string) error {
				delta := int64(1)
				if len(words) == 2 {
					var err error
					if delta, err = strconv.ParseInt(words[1], 10, 64); err != nil {
						return usage.Errorf("%q is not a whole number", words[1])
					}
				}
				sum, err := s.Add(ctx, words[0], delta)
				if err != nil {
					return err
				}
				fmt.Fprintln(e.Out, sum)
				return nil
			}),
		},
		{
			Name: "wait", Usage: "wait until all keys exist", ArgsUsage: "KEY...",
			Description: example("ddpbatch store wait rank/0 rank/1 --timeout 5m --addr node1:29400"), Flags: clientFlags(),
			Action: storeAction(e, 1, -1, func(ctx context.Context, _ *cli.Context, s *store.Client, keys []string) error {
				return s.Wait(ctx, keys...)
			}),
		},
		{
			Name: "list", Usage: "print the keys, or those that begin with PREFIX", ArgsUsage: "[PREFIX]",
			Description: example("ddpbatch store list --addr node1:29400", "ddpbatch store list rank/ --json"),
			Flags:       clientFlags(jsonFlag()),
			Action: storeAction(e, 0, 1, func(ctx context.Context, c *cli.Context, s *store.Client, words []string) error {
				prefix := ""
				if len(words) == 1 {
					prefix = words[0]
				}
				keys, err := s.List(ctx, prefix)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					return printJSON(e, keys)
				}
				t := newTable(e, "KEY")
				for _, key := range keys {
					t.Row(shownKey(key))
				}
				return t.Flush()
			}),
		},
	}
}

// storeAction returns an action that connects to the store that the flags name and calls do with the command's words, least to most of them
// (-1: any number).
func storeAction(e *env, least, most int, do func(context.Context, *cli.Context, *store.Client, []string) error) cli.ActionFunc {
	return func(c *cli.Context) (err error) {
		if err := checkWords(c, least, most); err != nil {
			return err
		}
		addr := cmp.Or(c.String("addr"), e.get("DDPBATCH_STORE"))
		if addr == "" {
			return usage.Errorf("store %s needs --addr HOST:PORT, because DDPBATCH_STORE is not set", c.Command.Name)
		}
		if err := checkStoreAddr(addr); err != nil {
			return err
		}
		if c.Duration("timeout") <= 0 {
			return usage.Errorf("--timeout is %v; it must be more than 0", c.Duration("timeout"))
		}
		secret, binding, err := storeBindingOf(e, c)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
		defer cancel()
		defer func() {
			if errors.Is(err, context.DeadlineExceeded) && c.Context.Err() == nil {
				err = fmt.Errorf("gave up after %v (--timeout): %w", c.Duration("timeout"), err)
			}
		}()
		s, err := store.Dial(ctx, addr, store.DialConfig{
			Secret: secret, Binding: binding, Name: "ddpbatch store " + c.Command.Name, Log: e.log(),
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		return do(ctx, c, s, c.Args().Slice())
	}
}

// checkStoreAddr returns an error for an address that no store can have. Only a look-up can show whether the host exists.
func checkStoreAddr(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return usage.Errorf("the store's address is %q, which is not HOST:PORT", addr)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return usage.Errorf("the store's address is %q; its port must be a number from 1 to 65535", addr)
	}
	return nil
}

// storeItem is a key with its value. A value that is not text is in Base64.
type storeItem struct {
	Key    string  `json:"key"`
	Value  *string `json:"value"`
	Base64 []byte  `json:"base64"`
}

func storeItems(keys []string, values [][]byte) []storeItem {
	items := make([]storeItem, len(keys))
	for i, key := range keys {
		items[i] = storeItem{Key: key}
		if text := string(values[i]); utf8.ValidString(text) {
			items[i].Value = &text
		} else {
			items[i].Base64 = values[i]
		}
	}
	return items
}

// shownKey returns a key, quoted if it would take several lines or affect a terminal.
func shownKey(key string) string {
	if !utf8.ValidString(key) || strings.ContainsFunc(key, text.Unsafe) {
		return strconv.Quote(key)
	}
	return key
}

// shownValue returns a value, quoted if it would affect a terminal.
func shownValue(e *env, value []byte) string {
	shown := string(value)
	if _, terminal := e.Terminal(e.Out); terminal {
		for _, r := range shown {
			if r == utf8.RuneError || text.Unsafe(r) && r != '\n' && r != '\t' {
				return strconv.Quote(shown)
			}
		}
	}
	return shown
}
