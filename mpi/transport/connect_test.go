package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
)

func TestConnectAloneNeedsNoPeer(t *testing.T) {
	m, err := Connect(t.Context(), testConfig(nil, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Rank() != 0 || m.Size() != 1 {
		t.Errorf("rank %d of %d", m.Rank(), m.Size())
	}
}

// A rank that never comes is named, with its state.
func TestMissingRanksAreNamed(t *testing.T) {
	tests := []struct {
		name    string
		rank    int // the rank of 3 that is present
		missing []int
		text    string
	}{
		{"higher", 0, []int{1, 2}, "rank 0 of 3 did not meet rank 1 (it has not connected); rank 2 (it has not connected)"},
		{"both_sides", 1, []int{0, 2}, "rank 1 of 3 did not meet rank 0 (it has not published an address); rank 2 (it has not connected)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it waits
			var err error
			var missing *MissingError
			// On a busy machine the time may pass before the rank begins to wait. The test then allows more.
			for limit := 100 * time.Millisecond; missing == nil && limit < testkit.Patience; limit *= 4 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				_, err = Connect(ctx, testConfig(store.NewMemory(), tt.rank, 3))
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v", err)
				}
				errors.As(err, &missing)
			}
			if missing == nil {
				t.Fatalf("got %v", err)
			}
			if len(missing.Missing) != len(tt.missing) || missing.Missing[0] != tt.missing[0] || missing.Missing[1] != tt.missing[1] {
				t.Errorf("missing %v, want %v", missing.Missing, tt.missing)
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %q, want %q", err, tt.text)
			}
		})
	}
}

func TestMissingErrorNamesAFew(t *testing.T) {
	e := &MissingError{Rank: 0, Size: 12, Err: context.DeadlineExceeded}
	for rank := 1; rank < 12; rank++ {
		e.Missing, e.Reasons = append(e.Missing, rank), append(e.Reasons, "?")
	}
	if text := e.Error(); !strings.Contains(text, "rank 8 (?); and 3 more: ") || strings.Contains(text, "rank 9") {
		t.Error(text)
	}
}

// A rank with another secret, run, attempt or size is refused and logged, and the others name it.
func TestStrangerRankIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		logged string
	}{
		{"secret", func(c *Config) { c.Secret[0]++ }, auth.ErrUnproved.Error()},
		{"run", func(c *Config) { c.Run = "other" }, auth.ErrUnproved.Error()},
		{"attempt", func(c *Config) { c.Attempt = 2 }, auth.ErrUnproved.Error()},
		{"size", func(c *Config) { c.Size = 4 }, "rank 2 of 4: refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it waits
			// The others must meet before the time is over. On a busy machine they get more time.
			limit := 3 * time.Second
			err := connectWithStranger(t, limit, tt.change, tt.logged)
			for ; err != nil && limit < testkit.Patience; err = connectWithStranger(t, limit, tt.change, tt.logged) {
				t.Logf("within %v: %v", limit, err)
				limit *= 4
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func connectWithStranger(t *testing.T, limit time.Duration, change func(*Config), logged string) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	dir := store.NewMemory()
	var log testkit.Journal
	errs := testkit.Each(3, func(rank int) error {
		cfg := testConfig(dir, rank, 3)
		cfg.Log = log.Logger()
		if rank == 2 {
			cfg.Log = nil
			change(&cfg)
		}
		m, err := Connect(ctx, cfg)
		if err == nil {
			m.Close()
		}
		return err
	})
	for rank, err := range errs[:2] {
		var missing *MissingError
		if !errors.As(err, &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 2 {
			return fmt.Errorf("rank %d: got %v, want only rank 2 to be missing", rank, err)
		}
	}
	if errs[2] == nil {
		return errors.New("rank 2 is connected")
	}
	if !strings.Contains(log.String(), logged) {
		return fmt.Errorf("logged %q, want %q", log.String(), logged)
	}
	return nil
}

// dialPort connects to a rank's port.
func dialPort(ctx context.Context, t *testing.T, dir Directory, to int) (net.Conn, string) {
	t.Helper()
	text, err := dir.Get(ctx, addressKey(to))
	if err != nil {
		t.Fatal(err)
	}
	addr, _, _, err := decodeAddressRecord(text)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, addr.String()
}

// A thousand connections that send rubbish or nothing do not disturb Connect, even if they exceed the room for them. After Connect nothing
// listens any more, and their descriptors are closed.
func TestStrangersDoNotDisturb(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := store.NewMemory()
	var log testkit.Journal
	before := openFiles(t)
	fabrics := make([]*Sockets, 3)
	connect := func(rank int) (err error) {
		cfg := testConfig(dir, rank, 3)
		cfg.Log = log.Logger()
		fabrics[rank], err = Connect(ctx, cfg)
		return err
	}
	first := make(chan error, 1)
	go func() { first <- connect(0) }()
	rubbish := []string{"", "GET / HTTP/1.1\r\n\r\n", "ddpbatch\x00\x02", "ddpbatch\xff\xff", strings.Repeat("\xff", 5000)}
	const strangers = 1000
	var conns []net.Conn
	var addr string
	for i := range strangers {
		var conn net.Conn
		conn, addr = dialPort(ctx, t, dir, 0)
		conns = append(conns, conn)
		io.WriteString(conn, rubbish[i%len(rubbish)]) // fails if the connection has been refused already
	}
	errs := testkit.Each(2, func(i int) error { return connect(i + 1) })
	if err := errors.Join(append(errs, <-first)...); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("somebody still listens after Connect")
	}
	for _, conn := range conns {
		conn.Close()
	}
	for _, f := range fabrics {
		f.Close()
	}
	if n := strings.Count(log.String(), "transport: connection refused"); n == 0 || n > 30 {
		t.Errorf("%d refusals are logged of %d, want some, but few", n, strangers)
	}
	testkit.Eventually(t, "all descriptors are given back", func() bool { return openFiles(t) <= before })
}

// brokenStore is a store whose calls fail.
type brokenStore struct {
	store.Store
	set, get error
}

func (b brokenStore) Set(ctx context.Context, key string, value []byte) error {
	if b.set != nil {
		return b.set
	}
	return b.Store.Set(ctx, key, value)
}

func (b brokenStore) Get(context.Context, string) ([]byte, error) { return nil, b.get }

func TestDirectoryErrorEndsConnect(t *testing.T) {
	broken := errors.New("the store is on fire")
	for name, dir := range map[string]Directory{
		"set": brokenStore{Store: store.NewMemory(), set: broken},
		"get": brokenStore{Store: store.NewMemory(), get: broken},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Connect(t.Context(), testConfig(dir, 1, 2)); !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPublishedRubbishEndsConnect(t *testing.T) {
	dir := store.NewMemory()
	dir.Set(t.Context(), addressKey(0), []byte("nowhere"))
	_, err := Connect(t.Context(), testConfig(dir, 1, 2))
	if err == nil || !strings.Contains(err.Error(), `look up rank 0: "nowhere" is not an address`) {
		t.Errorf("got %v", err)
	}
}

// Another process may have got the port of a rank that died. A rank does not trust the process that answers, and tries again until ctx
// ends.
func TestImpostorAtAddressIsRejected(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	attempts := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(attempts)
				return
			}
			attempts <- struct{}{}
			conn.Close()
		}
	}()
	dir := store.NewMemory()
	dir.Set(t.Context(), addressKey(0), addressRecord{l.Addr().String(), "", testSecret}.encode())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Connect(ctx, testConfig(dir, 1, 2))
		done <- err
	}()
	<-attempts
	<-attempts
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "rank 1 of 2 did not meet rank 0 ("+l.Addr().String()) {
		t.Errorf("got %v", err)
	}
	l.Close()
	for range attempts {
	}
}
