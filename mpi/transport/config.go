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

// role is what the handshakes of ranks are bound to.
const role = "transport"

// Directory is where ranks publish their addresses. The stores of mpi/store are
// such.
type Directory interface {
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until key is there.
	Get(ctx context.Context, key string) ([]byte, error)
}

// Sharing says which ranks of one machine use its memory between them.
type Sharing int

const (
	ShareWhereItWorks Sharing = iota
	ShareNever                // TCP alone
	ShareAlways               // a pair that cannot is an error
)

// Config is what Connect needs to know.
type Config struct {
	Rank, Size int
	Listen     string    // IP address to listen on and to publish; it must be one that the other ranks reach
	Directory  Directory // shared by all ranks, and by no other group
	Secret     store.Secret
	Run        string // the run's id and attempt: ranks of another are refused
	Attempt    int
	Sharing    Sharing
	UCX        UCX
	Streams    int          // TCP connections for data to each lower rank that shares no memory: up to 16; 0 picks a number
	Encrypt    bool         // data between ranks that share no memory; either all ranks say so, or none
	OwnCores   bool         // no other rank runs on the cores that this one is bound to
	Log        *slog.Logger // nil discards
}

// complete checks cfg and fills in what may be left out.
func (cfg Config) complete() (Config, error) {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return cfg, fmt.Errorf("rank %d of %d: there is no such rank", cfg.Rank, cfg.Size)
	}
	if cfg.Size > store.MaxWorld {
		return cfg, fmt.Errorf("%d ranks: a world has %d at most", cfg.Size, store.MaxWorld)
	}
	ip, err := netip.ParseAddr(cfg.Listen)
	if err != nil {
		return cfg, fmt.Errorf("address to listen on: %q is no IP address", cfg.Listen)
	}
	if ip.IsUnspecified() {
		return cfg, fmt.Errorf("address to listen on: the other ranks cannot connect to %s: name the one they reach this machine by", ip)
	}
	if cfg.Secret.IsZero() && cfg.Size > 1 {
		return cfg, store.ErrNoSecret
	}
	if cfg.Streams < 0 || cfg.Streams > MaxStreams {
		return cfg, fmt.Errorf("%d TCP streams to each rank: give 1 to %d, or 0 to have the number picked", cfg.Streams, MaxStreams)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return cfg, nil
}

// binding refuses ranks that differ in Encrypt or UCX, too: they would not understand each other.
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

// listen opens this rank's port and publishes it.
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

// key is what the connections to a rank with the given ticket are proved and encrypted with.
func (cfg Config) key(ticket auth.Secret) auth.Secret { return cfg.Secret.Derive(role, ticket.Hex()) }

func addressKey(rank int) string { return fmt.Sprintf("transport/%d", rank) }

// oversubscribed reports whether so many other ranks of this machine and this one have fewer cores than they are.
func (cfg Config) oversubscribed(others int) bool {
	return !cfg.OwnCores && others+1 > runtime.NumCPU()
}

// machineID tells machines apart, as far as sharing memory goes: it is that of the kernel's life (random(4)).
func machineID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(id) < 36 {
		return "unknown"
	}
	return string(id[:36])
}

var errNoSharing = errors.New("the ranks are to use shared memory alone, and these two have none: are they on one machine, of " +
	"one user, in one container?")

// MaxStreams is the largest number of TCP connections of a data link.
const MaxStreams = 16

const (
	// autoStreams and autoConns bound the streams that are picked: for each pair, and for all of a rank.
	autoStreams = 4
	autoConns   = 256
)

// streams is how many TCP connections the data link to a rank is to have, if it shares no memory with this one. Those that are picked
// outdo the limits that networks have for each flow; ranks of many others have flows enough as it is.
func (cfg Config) streams(local bool) int {
	switch {
	case cfg.Streams > 0:
		return cfg.Streams
	case local:
		return 1
	}
	return min(max(autoConns/cfg.Size, 1), autoStreams)
}

// addressRecord is what a rank publishes: where it listens, on which machine it is, and what those who dial it must know besides
// the run's secret. Whoever has not read the ticket in the Directory can neither pass for a rank nor stand between two.
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
		return addr, "", ticket, fmt.Errorf("the ticket of %s: %w", addr, err)
	}
	return addr, machine, ticket, nil
}
