package store

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"ddpbatch/internal/auth"
)

// OpenConfig says who opens a store.
type OpenConfig struct {
	// Rank and WorldSize are the caller's, unless the init method names them: then WorldSize is 0. Naming them twice
	// is an error, and so is naming them nowhere.
	Rank, WorldSize int

	// Secret and Binding are what the ends of tcp:// prove to each other.
	Secret  auth.Secret
	Binding auth.Binding

	Log *slog.Logger // nil: nothing is logged
}

// Opened is a store with the place of the one who opened it.
type Opened struct {
	Store           // to be closed: rank 0's ends that of all others
	Rank, WorldSize int
}

// Open opens the store that an init method names (see Place). Of tcp://, rank 0 serves the store, at the named
// address and no other; the others connect to it, and try again until ctx ends. Of file://, the last of all ranks to
// close it removes the file; one that an earlier run left would be read, so each run needs a new path (see OpenFile).
func Open(ctx context.Context, method string, cfg OpenConfig) (*Opened, error) {
	place, err := ParsePlace(method)
	if err != nil {
		return nil, err
	}
	o := &Opened{}
	if o.Rank, o.WorldSize, err = place.who(cfg.Rank, cfg.WorldSize); err != nil {
		return nil, fmt.Errorf("open a store: %s:// rendezvous: %w", place.Scheme, err)
	}
	switch {
	case place.Scheme == "file":
		o.Store, err = opened(OpenFile(place.Path, FileConfig{Workers: o.WorldSize}))
	case o.Rank == 0:
		o.Store, err = opened(listenAt(ctx, place.Addr, cfg))
	default:
		o.Store, err = opened(Dial(ctx, place.Addr, DialConfig{
			Secret: cfg.Secret, Binding: cfg.Binding, Name: fmt.Sprintf("rank %d", o.Rank), Log: cfg.Log,
		}))
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// opened keeps a nil pointer from becoming a Store.
func opened[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func listenAt(ctx context.Context, addr string, cfg OpenConfig) (*Server, error) {
	if cfg.Secret.IsZero() {
		return nil, fmt.Errorf("serve the store at %s: %w", addr, auth.ErrNoSecret)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve the store at %s, as rank 0: %w", addr, err)
	}
	return Serve(l, ServerConfig{Secret: cfg.Secret, Binding: cfg.Binding, Log: cfg.Log}), nil
}
