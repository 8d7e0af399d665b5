package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

// role is the role to which the handshakes of ranks are bound.
const role = "transport"

// Directory is where ranks publish their addresses. The stores of mpi/store implement it.
type Directory interface {
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until key is set.
	Get(ctx context.Context, key string) ([]byte, error)
}

// Sharing says whether ranks of one machine exchange data through shared memory.
type Sharing int

const (
	ShareWhereItWorks Sharing = iota
	ShareNever                // use TCP only
	ShareAlways               // a pair that cannot share memory is an error
)

// Config is the configuration of Connect.
type Config struct {
	Rank, Size int
	Listen     string    // IP address to listen on and to publish; the other ranks must be able to reach it
	Directory  Directory // shared by all ranks of the group, and by no other group
	Secret     store.Secret
	Run        string // the run's id; ranks of another run or attempt are refused
	Attempt    int
	Sharing    Sharing
	UCX        UCX
	Streams    int          // TCP connections for data to each lower rank without shared memory, up to 16; 0: Connect picks a number
	Encrypt    bool         // encrypt data between ranks that do not share memory; the same on all ranks
	OwnCores   bool         // no other rank runs on the cores that this one is bound to
	Log        *slog.Logger // nil discards
}

// complete checks cfg and fills in defaults.
func (cfg Config) complete() (Config, error) {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return cfg, fmt.Errorf("rank %d does not exist in a world of %d ranks", cfg.Rank, cfg.Size)
	}
	if cfg.Size > store.MaxWorld {
		return cfg, fmt.Errorf("a world has at most %d ranks, got %d", store.MaxWorld, cfg.Size)
	}
	ip, err := netip.ParseAddr(cfg.Listen)
	if err != nil {
		return cfg, fmt.Errorf("the address to listen on must be an IP address, got %q", cfg.Listen)
	}
	if ip.IsUnspecified() {
		return cfg, fmt.Errorf("the other ranks cannot connect to the address %s: listen on one at which they reach this machine", ip)
	}
	if cfg.Secret.IsZero() && cfg.Size > 1 {
		return cfg, store.ErrNoSecret
	}
	if cfg.Streams < 0 || cfg.Streams > MaxStreams {
		return cfg, fmt.Errorf("the number of TCP streams must be from 0 to %d, got %d", MaxStreams, cfg.Streams)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return cfg, nil
}

// binding returns the binding of handshakes. Ranks that differ in Encrypt or UCX are refused, too, because they cannot communicate.
func (cfg Config) binding() auth.Binding {
	b := auth.Binding{Run: cfg.Run, Attempt: cfg.Attempt, Role: role}
	if cfg.Encrypt {
		b.Role += ", data encrypted"
	}
	switch cfg.UCX {
	case UCXWhereItWorks:
		b.Role += ", perhaps by UCX"
	case UCXAlways:
		b.Role += ", by UCX"
	}
	return b
}

// listen opens this rank's port and publishes its address.
func (cfg Config) listen(ctx context.Context, machine string, ticket auth.Secret) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(cfg.Listen, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the other ranks: %w", err)
	}
	if err := cfg.Directory.Set(ctx, addressKey(cfg.Rank), addressRecord{l.Addr().String(), machine, ticket}.encode()); err != nil {
		l.Close()
		return nil, fmt.Errorf("publish the address of rank %d: %w", cfg.Rank, err)
	}
	return l, nil
}

// key returns the key that proves and encrypts the connections to a rank with the given ticket.
func (cfg Config) key(ticket auth.Secret) auth.Secret { return cfg.Secret.Derive(role, ticket.Hex()) }

func addressKey(rank int) string { return fmt.Sprintf("transport/%d", rank) }

// oversubscribed reports whether this rank and the given number of other ranks on this machine are more than its cores.
func (cfg Config) oversubscribed(others int) bool {
	return !cfg.OwnCores && others+1 > runtime.NumCPU()
}

// machineID identifies a machine, as far as sharing memory is concerned. It is the boot ID of the kernel (random(4)).
func machineID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(id) < 36 {
		return "unknown"
	}
	return string(id[:36])
}

var errNoSharing = errors.New("transport is \"shm\", but these two ranks cannot share memory: run them on one machine, as one user " +
	"and in one container, or set another transport")

// MaxStreams is the largest number of TCP connections of a data link.
const MaxStreams = 16

const (
	// autoStreams and autoConns limit the numbers of streams that streams picks: for each pair, and for all of a rank.
	autoStreams = 4
	autoConns   = 256
)

// streams returns the number of TCP connections of the data link to a rank, if it does not share memory with this one. By default it is
// large enough to exceed the limits that networks have for each flow. Ranks with many peers have enough flows anyway.
func (cfg Config) streams(local bool) int {
	switch {
	case cfg.Streams > 0:
		return cfg.Streams
	case local:
		return 1
	}
	return min(max(autoConns/cfg.Size, 1), autoStreams)
}

// addressRecord is what a rank publishes: where it listens, on which machine it is, and what a rank that dials it must know besides the
// run's secret. A process that has not read the ticket in the Directory can neither impersonate a rank nor be a man in the middle.
type addressRecord struct {
	addr, machine string
	ticket        auth.Secret
}

func (e addressRecord) encode() []byte {
	return []byte(e.addr + " " + e.ticket.Hex() + " " + e.machine)
}

func decodeAddressRecord(value []byte) (_ netip.AddrPort, machine string, ticket auth.Secret, err error) {
	if len(value) > 256 {
		value = value[:256]
	}
	text, rest, _ := strings.Cut(string(value), " ")
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return addr, "", ticket, fmt.Errorf("%q is not an address", text)
	}
	text, machine, _ = strings.Cut(rest, " ")
	if ticket, err = auth.ParseSecret(text); err != nil {
		return addr, "", ticket, fmt.Errorf("read the ticket of %s: %w", addr, err)
	}
	return addr, machine, ticket, nil
}
