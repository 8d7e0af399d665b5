package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

func TestParseInitMethod(t *testing.T) {
	for word, want := range map[string]initMethod{
		"tcp://node1:29500":                             {Scheme: "tcp", Addr: "node1:29500", Rank: -1, WorldSize: -1},
		"tcp://[::1]:1/?world_size=4&rank=3":            {Scheme: "tcp", Addr: "[::1]:1", Rank: 3, WorldSize: 4},
		"tcp://10.0.0.1:65535?use_libuv=0&rank=0":       {Scheme: "tcp", Addr: "10.0.0.1:65535", Rank: 0, WorldSize: -1},
		"file:///scratch/job/store":                     {Scheme: "file", Path: "/scratch/job/store", Rank: -1, WorldSize: -1},
		"file://localhost/a%20b?world_size=1":           {Scheme: "file", Path: "/a b", Rank: -1, WorldSize: 1},
		"FILE:///s?rank=1048575&world_size=1048576":     {Scheme: "file", Path: "/s", Rank: MaxWorld - 1, WorldSize: MaxWorld},
		"tcp://node1:29500?rank=1&world_size=2&init=no": {Scheme: "tcp", Addr: "node1:29500", Rank: 1, WorldSize: 2},
	} {
		if got, err := parseInitMethod(word); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", word, got, err, want)
		}
	}
}

// TestParseInitMethodRefuses checks the cases of torch's RendezvousTest and related tests, with torch's messages.
func TestParseInitMethodRefuses(t *testing.T) {
	for word, want := range map[string]string{
		"invalid://":                            "no rendezvous handler for invalid://",
		"env://":                                "no rendezvous handler for env://",
		"tcp://127.0.0.1":                       "tcp:// rendezvous: port number missing",
		"tcp://127.0.0.1?rank=0":                "port number missing",
		"tcp://127.0.0.1:0":                     "the port number is 0; it must be 1 to 65535",
		"tcp://127.0.0.1:65536":                 "the port number is 65536",
		"tcp://127.0.0.1:http":                  "is not an init method",
		"tcp://:29500":                          "host missing",
		"tcp://1::1%25lo]:29500":                `the host is "1::1%lo]"`,
		"tcp://me@node1:29500":                  "a user name",
		"tcp://node1:29500/store":               `the path "/store" is not allowed`,
		"file://":                               "file:// rendezvous: path missing",
		"file:///":                              "path missing",
		"file:store":                            "path missing",
		"file://?rank=0":                        "path missing",
		"file://tmp/store":                      `"tmp" is in the place of a host: write file:///PATH`,
		"file:///a%00b":                         "zero byte",
		"node1:29500":                           "",
		"":                                      "is not an init method",
		"/scratch/store":                        "is not an init method: write tcp://HOST:PORT or file:///PATH",
		"tcp://n:1?rank=one":                    `rank is "one"; it must be one number from 0`,
		"tcp://n:1?rank=-1":                     `rank is "-1"`,
		"tcp://n:1?world_size=0":                `world_size is "0"; it must be one number from 1`,
		"tcp://n:1?rank=1&rank=2":               `rank is "1,2"`,
		"tcp://n:1?rank=2&world_size=2":         "ranks go from 0 to 1",
		"tcp://n:1?world_size=1048577":          "world_size is",
		"tcp://n:1?rank=%zz":                    "read the parameters",
		"file:///" + strings.Repeat("a", 1<<14): "8192",
	} {
		got, err := parseInitMethod(word)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 || got != (initMethod{}) {
			t.Errorf("%.100s: %+v, %v; want %q", word, got, err, want)
		}
	}
}

func TestOpenRequiresTheRank(t *testing.T) {
	for name, c := range map[string]struct {
		query           string
		rank, worldSize int
		want            string
	}{
		"nowhere":            {"", 0, 0, "rank parameter missing"},
		"no size":            {"?rank=0", 0, 0, "size parameter missing"},
		"no rank":            {"?world_size=1", 0, 0, "rank parameter missing"},
		"twice":              {"?rank=0&world_size=1", 0, 1, "has node-specific arguments (rank, world_size) already"},
		"rank twice":         {"?rank=0", 0, 1, "has node-specific arguments"},
		"size twice":         {"?world_size=1", 0, 1, "has node-specific arguments"},
		"rank out of range":  {"", 2, 2, "ranks go from 0 to 1"},
		"rank below 0":       {"", -1, 2, "rank is -1"},
		"the size is absurd": {"", 0, -1, "rank is 0, and the world size -1"},
		"too many ranks":     {"", 0, MaxWorld + 1, "the world size is 1048577; it must be 1 to 1048576"},
	} {
		for _, method := range []string{"tcp://127.0.0.1:1", "file:///nowhere/store"} {
			o, err := Open(t.Context(), method+c.query, OpenConfig{Rank: c.rank, WorldSize: c.worldSize, Secret: secret, Binding: binding})
			if o != nil || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), method[:4]) {
				t.Errorf("%s: %v; want %q", name, err, c.want)
			}
		}
	}
}

// TestOpen has four ranks meet by each kind of init method, with their numbers in the method and beside it.
func TestOpen(t *testing.T) {
	const ranks = 4
	free := deadAddr(t).String()
	for _, method := range []string{"tcp://" + free, "file://" + tempPath(t)} {
		for _, named := range []bool{true, false} {
			t.Run(fmt.Sprintf("%.4s, %v", method, named), func(t *testing.T) {
				for rank, err := range testkit.Each(ranks, func(rank int) error {
					word, cfg := method, OpenConfig{Secret: secret, Binding: binding}
					if named {
						word += fmt.Sprintf("?rank=%d&world_size=%d", rank, ranks)
					} else {
						cfg.Rank, cfg.WorldSize = rank, ranks
					}
					return openAll(bounded(t), rank, word, cfg)
				}) {
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			})
		}
	}
}

// openAll opens a store as one of four ranks, and closes it after all have come.
func openAll(ctx context.Context, rank int, word string, cfg OpenConfig) error {
	s, err := Open(ctx, word, cfg)
	if err != nil {
		return err
	}
	if s.Rank != rank || s.WorldSize != 4 {
		err = fmt.Errorf("it is rank %d of %d", s.Rank, s.WorldSize)
	}
	keys := []string{"left/1", "left/2", "left/3"}
	if rank > 0 {
		setErr := s.Set(ctx, keys[rank-1], nil)
		if lost := new(LostError); !errors.As(setErr, &lost) { // otherwise rank 0, which waits for the key, left before the reply
			err = errors.Join(err, setErr)
		}
	} else {
		err = errors.Join(err, s.Wait(ctx, keys...))
	}
	return errors.Join(err, s.Close())
}

func TestOpenSaysWhyItFails(t *testing.T) {
	taken := listen(t)
	defer taken.Close()
	at := "tcp://" + taken.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for name, c := range map[string]struct {
		method string
		cfg    OpenConfig
		want   error
	}{
		"the port is taken":    {at, OpenConfig{Rank: 0, WorldSize: 2, Secret: secret}, syscall.EADDRINUSE},
		"no secret to serve":   {at, OpenConfig{Rank: 0, WorldSize: 2}, auth.ErrNoSecret},
		"no secret to connect": {at, OpenConfig{Rank: 1, WorldSize: 2}, auth.ErrNoSecret},
		"nobody serves": {"tcp://" + deadAddr(t).String(), OpenConfig{Rank: 1, WorldSize: 2, Secret: secret},
			context.DeadlineExceeded},
		// RFC 5737: an address that no machine has
		"rank 0 is on this machine":   {"tcp://192.0.2.1:29500", OpenConfig{Rank: 0, WorldSize: 2, Secret: secret}, syscall.EADDRNOTAVAIL},
		"the host is nobody's":        {"tcp://host.invalid:29500", OpenConfig{Rank: 0, WorldSize: 2, Secret: secret}, errAnyDNS},
		"the folder is a file's name": {"file:///dev/null/store", OpenConfig{Rank: 0, WorldSize: 2}, syscall.ENOTDIR},
	} {
		o, err := Open(ctx, c.method, c.cfg)
		var dns *net.DNSError
		if o != nil || !errors.Is(err, c.want) && !(c.want == errAnyDNS && errors.As(err, &dns)) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
}

var errAnyDNS = errors.New("a DNS error")

// FuzzParseInitMethod checks that accepted methods are within the limits.
func FuzzParseInitMethod(f *testing.F) {
	for _, word := range []string{"tcp://n:1?rank=0&world_size=4", "file:///a%20b", "tcp://[::1%25lo]:80", "env://",
		"file://tmp/x", "tcp://n:1?rank=00"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		p, err := parseInitMethod(word)
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(p.Addr)
		tcp := p.Scheme == "tcp" && err == nil && host != "" && port != "0" && p.Path == ""
		file := p.Scheme == "file" && p.Addr == "" && strings.HasPrefix(p.Path, "/") && !strings.Contains(p.Path, "\x00")
		if tcp == file || p.Rank < -1 || p.WorldSize < -1 || p.WorldSize == 0 || p.Rank >= 0 && p.WorldSize >= 0 && p.Rank >= p.WorldSize {
			t.Errorf("%q became %+v", word, p)
		}
	})
}
