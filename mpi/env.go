package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// InitEnv joins the group that the environment describes, as env:// of torch.distributed does. It reads RANK, WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT. If ddpbatch launched this rank, it also reads DDPBATCH_STORE, DDPBATCH_SECRET, DDPBATCH_LISTEN, DDPBATCH_RUN_ID and
// DDPBATCH_ATTEMPT.
//
// DDPBATCH_STORE is the address of a store that serves all ranks. Without it, rank 0 serves a store at MASTER_PORT, on all interfaces or,
// if MASTER_ADDR is a loopback address, only on that. DDPBATCH_LISTEN is the address at which the other ranks reach this one. It defaults
// to the address from which this rank reached the store. The run's id and attempt default to torchrun's TORCHELASTIC_RUN_ID and
// TORCHELASTIC_RESTART_COUNT+1, then to "none" and 1. A world of one rank reads only RANK and WORLD_SIZE.
//
// Ranks without a DDPBATCH_SECRET, such as those of your own program under `ddpbatch run`, derive the secret from the user's key file and
// the run's id. The key file is DDPBATCH_SECRET_FILE, or else ~/.config/ddpbatch/key, with HOME for ~. InitEnv makes it if it does not
// exist. All ranks must see the same file.
//
// DDPBATCH_TRANSPORT replaces cfg.Transport, and DDPBATCH_TCP_STREAMS replaces cfg.Streams. DDPBATCH_FLIGHT_FILE names the file to which
// the last operations are written at the first failure. DDPBATCH_OWN_CORES=1 says that no other rank runs on the cores of this one.
//
// InitEnv gives up when ctx ends, or after cfg.Timeout. Close also closes what InitEnv has opened.
func InitEnv(ctx context.Context, lookup func(string) (string, bool), cfg Config, log *slog.Logger) (*Comm, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	e, err := readEnvironment(lookup)
	if err != nil {
		return nil, fmt.Errorf("init from the environment: %w", err)
	}
	cfg.Transport, cfg.Streams = cmp.Or(e.transport, cfg.Transport), cmp.Or(e.streams, cfg.Streams)
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("init from the environment: %w", err)
	}
	if e.size == 1 {
		return newSelf(InitConfig{Config: cfg, Log: log}), nil
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.timeout())
	defer cancel()
	s, err := e.openStore(ctx, log)
	if err != nil {
		return nil, fmt.Errorf("init rank %d of %d from the environment: %w", e.rank, e.size, e.explain(err))
	}
	c, err := Init(ctx, InitConfig{
		Rank: e.rank, Size: e.size, Store: s.store, Listen: s.listen,
		Run: e.run, Attempt: e.attempt, Secret: e.secret, Config: cfg, Flight: e.flight, OwnCores: e.ownCores, Log: log,
	})
	if err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	c.core.world.initStore = s
	return c, nil
}

// environment is the content of the variables.
type environment struct {
	rank, size   int
	store        string // host:port, or empty: rank 0 serves it at master
	master, port string
	listen       string // or empty
	run          string
	attempt      int
	restart      string // torchrun's number of restarts within the attempt, or empty
	secret       auth.Secret
	keyFile      string // the file from which the secret was derived, or empty
	transport    string // replaces the configuration's, or empty
	streams      int    // replaces the configuration's, or 0
	ownCores     bool   // no other rank runs on the cores of this one
	flight       string // the file for the flight recorder, or empty
}

// readEnvironment reads the variables. Its error lists all faults, not only the first.
func readEnvironment(lookup func(string) (string, bool)) (environment, error) {
	v := variables{lookup: lookup}
	e := environment{
		size: v.number("WORLD_SIZE", 1, store.MaxWorld, ""),
		rank: v.number("RANK", 0, store.MaxWorld-1, ""),
	}
	if len(v.faults) == 0 && e.rank >= e.size {
		v.fault("RANK", "is %d, but WORLD_SIZE is %d: ranks are 0 to %d", e.rank, e.size, e.size-1)
	}
	if e.size == 1 || len(v.faults) > 0 {
		return e, v.err()
	}
	if e.store = v.get("DDPBATCH_STORE"); e.store != "" {
		if _, _, err := net.SplitHostPort(e.store); err != nil {
			v.fault("DDPBATCH_STORE", "is %q: it must be host:port", e.store)
		}
	} else {
		if e.master = v.get("MASTER_ADDR"); e.master == "" {
			v.fault("MASTER_ADDR", "is not set: set it to the host name or address of rank 0's machine")
		}
		e.port = strconv.Itoa(v.number("MASTER_PORT", 1, 65535, ""))
	}
	if e.listen = v.get("DDPBATCH_LISTEN"); e.listen != "" {
		if _, err := netip.ParseAddr(e.listen); err != nil {
			v.fault("DDPBATCH_LISTEN", "is %q: it must be an IP address", e.listen)
		}
	}
	e.run = cmp.Or(v.get("DDPBATCH_RUN_ID", "TORCHELASTIC_RUN_ID"), "none")
	e.restart = v.get("TORCHELASTIC_RESTART_COUNT")
	restarts := v.number("TORCHELASTIC_RESTART_COUNT", 0, maxAttempts, "0")
	e.attempt = v.number("DDPBATCH_ATTEMPT", 1, maxAttempts, strconv.Itoa(restarts+1))
	e.secret, e.keyFile = v.secret("DDPBATCH_SECRET", e.run)
	e.streams = v.number("DDPBATCH_TCP_STREAMS", 0, transport.MaxStreams, "0")
	e.ownCores = v.number("DDPBATCH_OWN_CORES", 0, 1, "0") == 1
	e.transport, e.flight = v.get("DDPBATCH_TRANSPORT"), v.get("DDPBATCH_FLIGHT_FILE")
	return e, v.err()
}

// explain adds to a refusal of the store how this rank's secret was derived.
func (e environment) explain(err error) error {
	if e.keyFile != "" && errors.Is(err, auth.ErrRefused) {
		return fmt.Errorf("%w; this rank derived its secret from the key file %s and the run id %q: give all ranks the same file, by "+
			"DDPBATCH_SECRET_FILE, or the same DDPBATCH_SECRET", err, e.keyFile, e.run)
	}
	return err
}

// maxAttempts is the largest valid number of attempts or restarts.
const maxAttempts = 1 << 20

// variables reads environment variables and collects what is wrong with them.
type variables struct {
	lookup func(string) (string, bool)
	faults []string
}

// get returns the first of the named variables that is not empty, or "".
func (v *variables) get(names ...string) string {
	for _, name := range names {
		if text, _ := v.lookup(name); text != "" {
			return text
		}
	}
	return ""
}

func (v *variables) fault(name, format string, args ...any) {
	v.faults = append(v.faults, name+" "+fmt.Sprintf(format, args...))
}

// err returns all faults in one line.
func (v *variables) err() error {
	if len(v.faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(v.faults, "; "))
}

// number reads a decimal number from low to high. missing is the text of a variable that is not set; if that is empty, too, the variable
// is required.
func (v *variables) number(name string, low, high int, missing string) int {
	text := cmp.Or(v.get(name), missing)
	if text == "" {
		v.fault(name, "is not set: start the ranks with `ddpbatch run`, or set it for each of them")
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		v.fault(name, "is %q: it must be a number from %d to %d", text, low, high)
		return 0
	}
	return n
}

// secret returns the secret that name is set to. If name is not set, it derives the run's secret from the user's key file, and also
// returns the path of that file.
func (v *variables) secret(name, run string) (secret auth.Secret, keyFile string) {
	if text := v.get(name); text != "" {
		s, err := auth.ParseSecret(text)
		if err != nil {
			v.fault(name, "is not usable: %v", err)
		}
		return s, ""
	}
	path, err := auth.KeyPath(v.lookup)
	if err == nil {
		secret, err = auth.RunSecret(path, run)
	}
	if err != nil {
		v.fault(name, "is not set, and the secret cannot be derived from the key file (%v): start the ranks with `ddpbatch run`, or set "+
			"it to the same 64 hexadecimal digits on all ranks (`openssl rand -hex 32` makes some)", err)
	}
	return secret, path
}
