package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"ddpbatch/internal/auth"
)

// role is what the handshakes of a mesh are bound to.
const role = "transport"

// Directory is where ranks publish their addresses. The stores of mpi/store are
// such.
type Directory interface {
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until key is there.
	Get(ctx context.Context, key string) ([]byte, error)
}

// Config is what ConnectTCP needs to know.
type Config struct {
	Rank, Size int
	Listen     string    // IP address to listen on and to publish; it must be one that the other ranks reach
	Directory  Directory // shared by all ranks, and by no other group
	Secret     auth.Secret
	Run        string // the run's id and attempt: ranks of another are refused
	Attempt    int

	// Timeout is how long Send, Sent and Recv wait for a rank that makes no
	// progress. A frame is the least progress that counts.
	Timeout time.Duration

	// Describe words a call in errors; nil prints its numbers.
	Describe func(Call) string

	Log *slog.Logger // nil discards
}

// complete checks cfg and fills in what may be left out.
func (cfg Config) complete() (Config, error) {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return cfg, fmt.Errorf("rank %d of %d: there is no such rank", cfg.Rank, cfg.Size)
	}
	ip, err := netip.ParseAddr(cfg.Listen)
	if err != nil {
		return cfg, fmt.Errorf("address to listen on: %q is no IP address", cfg.Listen)
	}
	if ip.IsUnspecified() {
		return cfg, fmt.Errorf("address to listen on: the other ranks cannot connect to %s: name the one they reach this machine by", ip)
	}
	if cfg.Secret.IsZero() && cfg.Size > 1 {
		return cfg, auth.ErrNoSecret
	}
	if cfg.Timeout <= 0 {
		return cfg, errors.New("the time-out must be positive")
	}
	if cfg.Describe == nil {
		cfg.Describe = func(c Call) string { return fmt.Sprintf("%+v", c) }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return cfg, nil
}

func (cfg Config) binding() auth.Binding {
	return auth.Binding{Run: cfg.Run, Attempt: cfg.Attempt, Role: role}
}

// listen opens this rank's port and publishes it.
func (cfg Config) listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(cfg.Listen, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the other ranks: %w", err)
	}
	if err := cfg.Directory.Set(ctx, addressKey(cfg.Rank), []byte(l.Addr().String())); err != nil {
		l.Close()
		return nil, fmt.Errorf("publish the address of rank %d: %w", cfg.Rank, err)
	}
	return l, nil
}

func addressKey(rank int) string { return fmt.Sprintf("transport/%d", rank) }
