package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// OpenConfig configures Open.
type OpenConfig struct {
	// Rank and WorldSize are the caller's, unless the init method has them: then WorldSize must be 0. Giving them twice is an
	// error, and so is not giving them at all.
	Rank, WorldSize int

	// Secret and Binding are what the two ends of tcp:// prove to each other.
	Secret  Secret
	Binding Binding

	Log *slog.Logger // nil: nothing is logged
}

// Opened is a store, and the rank and the world size of the process that opened it.
type Opened struct {
	Store           // must be closed; closing rank 0's store ends it for all others
	Rank, WorldSize int
}

// Open opens the store that an init method of torch.distributed names:
//
//	tcp://HOST:PORT      a store that rank 0 serves at that address
//	file:///PATH         a store in a file
//
// Either may contain the caller's rank and world size, as in tcp://node1:29500?rank=0&world_size=4. Other parameters are ignored,
// as in torch.distributed.
//
// With tcp://, rank 0 serves the store, only at the named address. The others connect to it, and try again until ctx ends. With
// file://, the last rank to close the file removes it. A file that an earlier run left would be read, so each run needs a new path
// (see OpenFile).
func Open(ctx context.Context, method string, cfg OpenConfig) (*Opened, error) {
	parsed, err := parseInitMethod(method)
	if err != nil {
		return nil, fmt.Errorf("open a store: %w", err)
	}
	o := &Opened{}
	if o.Rank, o.WorldSize, err = parsed.ranks(cfg.Rank, cfg.WorldSize); err != nil {
		return nil, fmt.Errorf("open a store: %s:// rendezvous: %w", parsed.Scheme, err)
	}
	switch {
	case parsed.Scheme == "file":
		o.Store, err = asStore(OpenFile(parsed.Path, FileConfig{Workers: o.WorldSize}))
	case o.Rank == 0:
		o.Store, err = asStore(serveAt(ctx, parsed.Addr, cfg))
	default:
		o.Store, err = asStore(Dial(ctx, parsed.Addr, DialConfig{
			Secret: cfg.Secret, Binding: cfg.Binding, Name: fmt.Sprintf("rank %d", o.Rank), Log: cfg.Log,
		}))
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// asStore converts s to a Store, and avoids a Store that holds a nil pointer.
func asStore[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func serveAt(ctx context.Context, addr string, cfg OpenConfig) (*Server, error) {
	if cfg.Secret.IsZero() {
		return nil, fmt.Errorf("serve the store at %s: %w", addr, ErrNoSecret)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve the store at %s, as rank 0: %w", addr, err)
	}
	return Serve(l, ServerConfig{Secret: cfg.Secret, Binding: cfg.Binding, Log: cfg.Log}), nil
}

// initMethod is a parsed init method.
type initMethod struct {
	Scheme    string // "tcp" or "file"
	Addr      string // of tcp: "host:port"
	Path      string // of file
	Rank      int    // -1: not given
	WorldSize int    // -1: not given
}

// MaxWorld is the largest world size. A larger one must be a typing error.
const MaxWorld = 1 << 20

const maxInitMethod = 8 << 10 // bytes

// parseInitMethod parses an init method.
func parseInitMethod(word string) (initMethod, error) {
	if len(word) > maxInitMethod {
		return initMethod{}, fmt.Errorf("the init method has %d bytes, more than %d: %w", len(word), maxInitMethod, ErrTooLarge)
	}
	u, err := url.Parse(word)
	if err != nil {
		if parse, ok := errors.AsType[*url.Error](err); ok {
			err = parse.Err // the url.Error would repeat the word
		}
		return initMethod{}, fmt.Errorf("%s is not an init method: %w", quote(word), err)
	}
	p := initMethod{Scheme: u.Scheme}
	switch u.Scheme {
	case "tcp":
		p.Addr, err = tcpAddr(u)
	case "file":
		p.Path, err = filePath(u)
	case "":
		return initMethod{}, fmt.Errorf("%s is not an init method: write tcp://HOST:PORT or file:///PATH", quote(word))
	default:
		return initMethod{}, fmt.Errorf("no rendezvous handler for %s://: write tcp://HOST:PORT or file:///PATH", u.Scheme)
	}
	if err == nil {
		p.Rank, p.WorldSize, err = namedRanks(u.RawQuery)
	}
	if err != nil {
		return initMethod{}, fmt.Errorf("%s:// rendezvous: %w", u.Scheme, err)
	}
	return p, nil
}

func tcpAddr(u *url.URL) (string, error) {
	host, port := u.Hostname(), u.Port()
	switch n, err := strconv.Atoi(port); {
	case host == "":
		return "", errors.New("host missing: write tcp://HOST:PORT")
	case strings.ContainsAny(host, "[]"): // net/url accepts a single bracket in a zone
		return "", fmt.Errorf("the host is %s, with one bracket: write tcp://HOST:PORT, an IPv6 address as tcp://[::1]:PORT", quote(host))
	case port == "":
		return "", errors.New("port number missing: write tcp://HOST:PORT")
	case err != nil || n < 1 || n > 65535:
		return "", fmt.Errorf("the port number is %s; it must be 1 to 65535", port)
	case u.User != nil:
		return "", errors.New("a user name is not allowed: write tcp://HOST:PORT")
	case u.Path != "" && u.Path != "/":
		return "", fmt.Errorf("the path %s is not allowed: write tcp://HOST:PORT", quote(u.Path))
	}
	return net.JoinHostPort(host, port), nil
}

func filePath(u *url.URL) (string, error) {
	switch {
	case u.Host != "" && u.Host != "localhost":
		return "", fmt.Errorf("%s is in the place of a host: write file:///PATH, with three slashes", quote(u.Host))
	case u.Path == "" || u.Path == "/":
		return "", errors.New("path missing: write file:///PATH")
	case strings.ContainsRune(u.Path, 0):
		return "", errors.New("the path has a zero byte")
	}
	return u.Path, nil
}

// namedRanks parses the parameters rank and world_size. -1 stands for an absent one.
func namedRanks(query string) (rank, size int, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, 0, fmt.Errorf("read the parameters: %w", err)
	}
	number := func(name string, least int) (int, error) {
		if !values.Has(name) {
			return -1, nil
		}
		n, err := strconv.Atoi(values.Get(name))
		if err != nil || n < least || n > MaxWorld || len(values[name]) > 1 {
			return 0, fmt.Errorf("%s is %s; it must be one number from %d to %d", name, quote(strings.Join(values[name], ",")), least,
				MaxWorld)
		}
		return n, nil
	}
	if rank, err = number("rank", 0); err != nil {
		return 0, 0, err
	}
	if size, err = number("world_size", 1); err != nil {
		return 0, 0, err
	}
	if rank >= 0 && size >= 0 && rank >= size {
		return 0, 0, fmt.Errorf("rank is %d, and world_size %d: ranks go from 0 to %d", rank, size, size-1)
	}
	return rank, size, nil
}

// ranks returns the rank and the world size of the init method or of the caller, whose worldSize is 0 in the first case. Giving
// both is an error.
func (p initMethod) ranks(rank, worldSize int) (int, int, error) {
	switch {
	case worldSize == 0 && p.Rank < 0:
		return 0, 0, errors.New("rank parameter missing")
	case worldSize == 0 && p.WorldSize < 0:
		return 0, 0, errors.New("world size parameter missing")
	case worldSize == 0:
		return p.Rank, p.WorldSize, nil
	case p.Rank >= 0 || p.WorldSize >= 0:
		return 0, 0, errors.New("the init method has node-specific arguments (rank, world_size) already")
	case worldSize > MaxWorld:
		return 0, 0, fmt.Errorf("the world size is %d; it must be 1 to %d", worldSize, MaxWorld)
	case rank < 0 || rank >= worldSize:
		return 0, 0, fmt.Errorf("rank is %d, and the world size %d: ranks go from 0 to %d", rank, worldSize, worldSize-1)
	}
	return rank, worldSize, nil
}
