package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
)

// What waiting does not mend ends a meeting at once: a rank with another size of the world, and a second
// one of the same number.
func TestMeetingThatCannotBe(t *testing.T) {
	for _, tt := range []struct {
		name       string
		rank, size int // who comes to rank 0 of 3, where a rank 2 is
		text       string
	}{
		{"size", 1, 2, "rank 0 is in a world of 3, and this one in a world of 2: start all ranks with the same world size"},
		{"duplicate", 2, 3, ": refused: a rank of that number is there already"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			dir := store.NewMemory()
			done := make(chan error, 1)
			go func() {
				_, err := Connect(ctx, testConfig(dir, 0, 3))
				done <- err
			}()
			seatFirmly(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 1, try: 1})
			var err error
			testkit.Within(t, testkit.Patience, func() { _, err = Connect(ctx, testConfig(dir, tt.rank, tt.size)) })
			var missing *MissingError
			if !errors.As(err, &missing) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %q", err, tt.text)
			}
			cancel()
			if err := <-done; !errors.As(err, &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 1 {
				t.Errorf("rank 0 got %v, want only rank 1 to be missing", err)
			}
		})
	}
}

// knockAt connects to a rank's port.
func knockAt(ctx context.Context, t *testing.T, dir Directory, to int) (net.Conn, string) {
	t.Helper()
	text, err := dir.Get(ctx, addressKey(to))
	if err != nil {
		t.Fatal(err)
	}
	addr, _, _, err := decodeEntry(text)
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

// A thousand connections that send rubbish, or nothing, do not disturb a meeting, even where they are more than there is room for;
// after it nothing listens any more, and what they cost is given back.
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
		conn, addr = knockAt(ctx, t, dir, 0)
		conns = append(conns, conn)
		io.WriteString(conn, rubbish[i%len(rubbish)]) // fails where it is refused already
	}
	errs := testkit.Each(2, func(i int) error { return connect(i + 1) })
	if err := errors.Join(append(errs, <-first)...); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("somebody still listens after the meeting")
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

// brokenStore has a store that fails.
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

func TestDirectoryFails(t *testing.T) {
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

func TestPublishedRubbish(t *testing.T) {
	dir := store.NewMemory()
	dir.Set(t.Context(), addressKey(0), []byte("nowhere"))
	_, err := Connect(t.Context(), testConfig(dir, 1, 2))
	if err == nil || !strings.Contains(err.Error(), `look up rank 0: "nowhere" is not an address`) {
		t.Errorf("got %v", err)
	}
}

// Another process may have the port of a rank that died: whoever answers is
// not believed, and asked again until ctx ends.
func TestImpostorAtAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	knocks := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(knocks)
				return
			}
			knocks <- struct{}{}
			conn.Close()
		}
	}()
	dir := store.NewMemory()
	dir.Set(t.Context(), addressKey(0), entry{l.Addr().String(), "", testSecret}.encode())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Connect(ctx, testConfig(dir, 1, 2))
		done <- err
	}()
	<-knocks
	<-knocks
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "rank 1 of 2 did not meet rank 0 ("+l.Addr().String()) {
		t.Errorf("got %v", err)
	}
	l.Close()
	for range knocks {
	}
}
