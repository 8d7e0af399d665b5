package mpi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

const secretHex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// lookup returns a function that looks up the variables of vars, in place of the process's environment.
func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		text, ok := vars[name]
		return text, ok
	}
}

// environ returns a complete environment with the given changes. A change to the empty string has the effect of removing the variable.
func environ(changes ...string) map[string]string {
	vars := map[string]string{
		"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "DDPBATCH_SECRET": secretHex,
	}
	for i := 0; i < len(changes); i += 2 {
		vars[changes[i]] = changes[i+1]
	}
	return vars
}

func TestEnvironmentIsReadAsItIsSet(t *testing.T) {
	secret, err := auth.ParseSecret(secretHex)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		vars map[string]string
		want environment
	}{
		{
			"least", environ(),
			environment{rank: 1, size: 2, master: "127.0.0.1", port: "29500", run: "none", attempt: 1, secret: secret},
		},
		{
			"torchrun", environ("TORCHELASTIC_RUN_ID", "job", "TORCHELASTIC_RESTART_COUNT", "2"),
			environment{rank: 1, size: 2, master: "127.0.0.1", port: "29500", run: "job", attempt: 3, restart: "2", secret: secret},
		},
		{
			"ddpbatch", environ("MASTER_ADDR", "", "DDPBATCH_STORE", "node0:4000", "DDPBATCH_LISTEN", "10.0.0.2",
				"DDPBATCH_RUN_ID", "mnist-1", "TORCHELASTIC_RUN_ID", "other", "DDPBATCH_ATTEMPT", "5", "TORCHELASTIC_RESTART_COUNT", "1"),
			environment{rank: 1, size: 2, store: "node0:4000", listen: "10.0.0.2", run: "mnist-1", attempt: 5,
				restart: "1", secret: secret},
		},
		{"alone", map[string]string{"RANK": "0", "WORLD_SIZE": "1"}, environment{size: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readEnvironment(lookup(tt.vars))
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestFaultyEnvironmentIsRefused(t *testing.T) {
	tests := []struct {
		name string
		vars map[string]string
		want []string
	}{
		{"nothing", nil, []string{"WORLD_SIZE is not set: start the ranks with `ddpbatch run`", "RANK is not set"}},
		{"rank_text", environ("RANK", "one"), []string{`RANK is "one": it must be a number from 0`}},
		{"rank_negative", environ("RANK", "-1"), []string{`RANK is "-1"`}},
		{"rank_too_high", environ("RANK", "2"), []string{"RANK is 2, but WORLD_SIZE is 2: ranks are 0 to 1"}},
		{"rank_too_high_alone", environ("WORLD_SIZE", "1"), []string{"RANK is 1, but WORLD_SIZE is 1"}},
		{"size_zero", environ("WORLD_SIZE", "0"), []string{`WORLD_SIZE is "0": it must be a number from 1`}},
		{"size_huge", environ("WORLD_SIZE", "99999999999"), []string{`WORLD_SIZE is "99999999999"`}},
		{"no_master", environ("MASTER_ADDR", "", "MASTER_PORT", ""), []string{"MASTER_ADDR is not set", "MASTER_PORT is not set"}},
		{"port", environ("MASTER_PORT", "65536"), []string{`MASTER_PORT is "65536": it must be a number from 1 to 65535`}},
		{"store", environ("DDPBATCH_STORE", "node0"), []string{`DDPBATCH_STORE is "node0": it must be host:port`}},
		{"listen", environ("DDPBATCH_LISTEN", "ib0"), []string{`DDPBATCH_LISTEN is "ib0": it must be an IP address`}},
		{"attempt", environ("DDPBATCH_ATTEMPT", "0"), []string{`DDPBATCH_ATTEMPT is "0": it must be a number from 1`}},
		{"restart", environ("TORCHELASTIC_RESTART_COUNT", "x"), []string{`TORCHELASTIC_RESTART_COUNT is "x"`}},
		{"no_secret", environ("DDPBATCH_SECRET", ""),
			[]string{"DDPBATCH_SECRET is not set", "`ddpbatch run`", "openssl rand -hex 32", "HOME"}},
		{"no_key", environ("DDPBATCH_SECRET", "", "DDPBATCH_SECRET_FILE", "/dev/null"),
			[]string{"DDPBATCH_SECRET is not set", "/dev/null", "regular file"}},
		{"bad_secret", environ("DDPBATCH_SECRET", "hunter2"), []string{"DDPBATCH_SECRET is not usable"}},
		{"several", environ("MASTER_PORT", "x", "DDPBATCH_SECRET", "x"), []string{"MASTER_PORT", "DDPBATCH_SECRET"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := InitEnv(t.Context(), lookup(tt.vars), DefaultConfig(), nil)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q shows the secret", err)
			}
		})
	}
}

func TestInitEnvOfOneRankNeedsNoStore(t *testing.T) {
	c, err := InitEnv(t.Context(), lookup(map[string]string{"RANK": "0", "WORLD_SIZE": "1"}), DefaultConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Size() != 1 {
		t.Errorf("a world of %d", c.Size())
	}
}

// initByEnv runs InitEnv and a collective on all ranks of an environment.
func initByEnv(t *testing.T, size int, vars map[string]string, f func(rank int, c *Comm)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	must(t, testkit.Each(size, func(rank int) error {
		own := map[string]string{"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(size), "DDPBATCH_SECRET": secretHex}
		for name, text := range vars {
			own[name] = text
		}
		c, err := InitEnv(ctx, lookup(own), DefaultConfig(), nil)
		if err != nil {
			return err
		}
		x := []int32{1}
		if err := AllReduce(ctx, c, x, Sum); err != nil {
			return err
		}
		if int(x[0]) != size || c.Rank() != rank || c.Size() != size {
			t.Errorf("rank %d of %d has %d", c.Rank(), c.Size(), x[0])
		}
		if f != nil {
			f(rank, c)
		}
		return c.Close()
	}))
}

func TestInitEnvServesTheStoreUntilClose(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "127.0.0.5"} {
		t.Run(host, func(t *testing.T) {
			port := testkit.FreePort(t, host)
			initByEnv(t, 3, map[string]string{"MASTER_ADDR": host, "MASTER_PORT": port}, nil)
			// Close has closed the store.
			if conn, err := net.Dial("tcp", net.JoinHostPort(host, port)); err == nil {
				conn.Close()
				t.Error("the store still listens")
			}
		})
	}
}

// All ranks dial the agent's store under their names, and it outlives the group.
func TestInitEnvDialsTheAgentsStore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := auth.ParseSecret(secretHex)
	if err != nil {
		t.Fatal(err)
	}
	names := make(chan string, 10)
	server := store.Serve(l, store.ServerConfig{
		Secret: secret, Binding: auth.Binding{Run: "r", Attempt: 4, Role: "store"},
		Joined: func(name string, _ net.Addr) { names <- name },
	})
	defer server.Close()
	for _, restart := range []string{"0", "1"} { // keys from before the restart do not mislead the ranks after it
		initByEnv(t, 2, map[string]string{
			"DDPBATCH_STORE": l.Addr().String(), "DDPBATCH_RUN_ID": "r", "DDPBATCH_ATTEMPT": "4",
			"DDPBATCH_LISTEN": "127.0.0.2", "TORCHELASTIC_RESTART_COUNT": restart,
		}, nil)
		got := map[string]bool{<-names: true, <-names: true}
		if !got["rank 0"] || !got["rank 1"] {
			t.Errorf("the clients' names are %v", got)
		}
		addr, err := server.Get(t.Context(), "restart/"+restart+"/mpi/4/transport/1")
		if err != nil || !strings.HasPrefix(string(addr), "127.0.0.2:") {
			t.Errorf("rank 1 published %q, %v; want DDPBATCH_LISTEN's address", addr, err)
		}
	}
}

// Without DDPBATCH_LISTEN, a rank listens on the address from which it reached the store.
func TestInitEnvListensWhereItReachedTheStore(t *testing.T) {
	e := environment{rank: 1, size: 2, run: "none", attempt: 1, secret: testSecret}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := store.Serve(l, store.ServerConfig{Secret: testSecret, Binding: auth.Binding{Run: "none", Attempt: 1, Role: "store"}})
	defer server.Close()
	e.store = l.Addr().String()
	s, err := e.openStore(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if s.listen != "127.0.0.1" {
		t.Errorf("listens on %s", s.listen)
	}
}

func TestInitEnvSaysWhyItFails(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := strconv.Itoa(busy.Addr().(*net.TCPAddr).Port)
	closed := testkit.FreePort(t, "127.0.0.1")
	tests := []struct {
		name string
		vars map[string]string
		text string
	}{
		{"port_taken", environ("RANK", "0", "MASTER_PORT", port), "serve the store at MASTER_PORT: "},
		// RFC 5737: an address for documentation
		{"master_elsewhere", environ("RANK", "0", "MASTER_ADDR", "192.0.2.1"), `MASTER_ADDR is "192.0.2.1": it must name this machine`},
		{"nobody_serves", environ("MASTER_PORT", closed), "connect to the store: "},
		{"others_missing", environ("RANK", "0", "MASTER_PORT", closed), "rank 0 of 2 did not meet rank 1"},
		{"config", environ(), `transport "x" is unknown`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ending(t, time.Second, func(ctx context.Context) error {
				cfg := DefaultConfig()
				if tt.name == "config" {
					cfg.Transport = "x"
				}
				_, err := InitEnv(ctx, lookup(tt.vars), cfg, nil)
				if err == nil || !strings.Contains(err.Error(), tt.text) {
					return fmt.Errorf("got %v, want %q", err, tt.text)
				}
				return nil
			})
		})
	}
}

// One rank of three has another secret: the store refuses it, and the others name it.
func TestInitEnvRefusesAnotherSecret(t *testing.T) {
	t.Parallel() // it waits
	ending(t, 3*time.Second, func(ctx context.Context) error {
		port := testkit.FreePort(t, "127.0.0.1")
		var log testkit.Journal
		errs := testkit.Each(3, func(rank int) error {
			vars := environ("RANK", strconv.Itoa(rank), "WORLD_SIZE", "3", "MASTER_PORT", port)
			if rank == 2 {
				vars["DDPBATCH_SECRET"] = strings.Repeat("ab", 32)
			}
			_, err := InitEnv(ctx, lookup(vars), DefaultConfig(), log.Logger())
			return err
		})
		var missing *transport.MissingError
		switch {
		case !errors.As(errs[0], &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 2:
			return fmt.Errorf("rank 0 got %v", errs[0])
		case errs[1] == nil || !strings.Contains(errs[1].Error(), "rank 2"):
			return fmt.Errorf("rank 1 got %v", errs[1])
		case !errors.Is(errs[2], auth.ErrRefused):
			return fmt.Errorf("rank 2 got %v", errs[2])
		case !strings.Contains(log.String(), "refused"):
			return fmt.Errorf("logged %q", log.String())
		}
		return nil
	})
}

// Ranks without DDPBATCH_SECRET use the key file of their user, which the first rank creates.
func TestInitEnvMakesAndSharesAKeyFile(t *testing.T) {
	home := t.TempDir()
	for name, vars := range map[string]map[string]string{
		"home": {"HOME": home},
		"file": {"HOME": home, "DDPBATCH_SECRET_FILE": filepath.Join(home, "other")},
	} {
		t.Run(name, func(t *testing.T) {
			maps.Copy(vars, map[string]string{
				"DDPBATCH_SECRET": "", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": testkit.FreePort(t, "127.0.0.1"),
				"TORCHELASTIC_RUN_ID": "job/7",
			})
			initByEnv(t, 2, vars, nil)
		})
	}
	for _, path := range []string{".config/ddpbatch/key", "other"} {
		if info, err := os.Stat(filepath.Join(home, path)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got %v, %v", path, info, err)
		}
	}
}

// A rank is refused if it sees another key file, as on a node with its own home directory, or belongs to another run. Its error says what
// its secret was made from.
func TestInitEnvRefusesAnotherKeyFile(t *testing.T) {
	for _, name := range []string{"file", "run"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			ending(t, 3*time.Second, func(ctx context.Context) error {
				port, keys := testkit.FreePort(t, "127.0.0.1"), t.TempDir()
				errs := testkit.Each(2, func(rank int) error {
					vars := environ("RANK", strconv.Itoa(rank), "MASTER_PORT", port, "DDPBATCH_SECRET", "", "TORCHELASTIC_RUN_ID", "a",
						"DDPBATCH_SECRET_FILE", filepath.Join(keys, "key"))
					if rank == 1 && name == "file" {
						vars["DDPBATCH_SECRET_FILE"] += "1"
					}
					if rank == 1 && name == "run" {
						vars["TORCHELASTIC_RUN_ID"] = "b"
					}
					_, err := InitEnv(ctx, lookup(vars), DefaultConfig(), nil)
					return err
				})
				if errs[0] == nil {
					return errors.New("rank 0 met somebody")
				}
				if !errors.Is(errs[1], auth.ErrRefused) || !strings.Contains(errs[1].Error(), filepath.Join(keys, "key")) ||
					!strings.Contains(errs[1].Error(), "DDPBATCH_SECRET_FILE") {
					return fmt.Errorf("rank 1 got %v", errs[1])
				}
				return nil
			})
		})
	}
}
