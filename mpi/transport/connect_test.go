package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

func TestConfigFaults(t *testing.T) {
	tests := []struct {
		name      string
		change    func(*Config)
		complaint string
	}{
		{"rank_negative", func(c *Config) { c.Rank = -1 }, "rank -1 of 2"},
		{"rank_too_high", func(c *Config) { c.Rank = 2 }, "rank 2 of 2"},
		{"size_zero", func(c *Config) { c.Size, c.Rank = 0, 0 }, "rank 0 of 0"},
		{"listen_empty", func(c *Config) { c.Listen = "" }, "no IP address"},
		{"listen_name", func(c *Config) { c.Listen = "localhost" }, "no IP address"},
		{"listen_everywhere", func(c *Config) { c.Listen = "0.0.0.0" }, "cannot connect to 0.0.0.0"},
		{"listen_everywhere_6", func(c *Config) { c.Listen = "::" }, "cannot connect to ::"},
		{"listen_elsewhere", func(c *Config) { c.Listen = "192.0.2.1" }, "listen for the other ranks"}, // TEST-NET-1, RFC 5737
		{"timeout", func(c *Config) { c.Timeout = 0 }, "time-out"},
		{"no_secret", func(c *Config) { c.Secret = auth.Secret{} }, "no secret is set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(newBoard(), 0, 2)
			tt.change(&cfg)
			_, err := ConnectTCP(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), tt.complaint) {
				t.Errorf("got %v, want %q", err, tt.complaint)
			}
		})
	}
}

func TestConnectAlone(t *testing.T) {
	m, err := ConnectTCP(t.Context(), testConfig(nil, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Rank() != 0 || m.Size() != 1 {
		t.Errorf("rank %d of %d", m.Rank(), m.Size())
	}
}

// A rank that never comes is named, with what is known of it.
func TestMissingRanks(t *testing.T) {
	tests := []struct {
		name    string
		rank    int // who is there, of 3
		missing []int
		text    string
	}{
		{"higher", 0, []int{1, 2}, "rank 0 of 3 did not meet rank 1 (it has not connected); rank 2 (it has not connected)"},
		{"both_sides", 1, []int{0, 2}, "rank 1 of 3 did not meet rank 0 (it has not published an address); rank 2 (it has not connected)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := ConnectTCP(ctx, testConfig(newBoard(), tt.rank, 3))
			var missing *MissingError
			if !errors.As(err, &missing) || !errors.Is(err, context.DeadlineExceeded) {
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

// One rank has another secret, run, attempt or size: it is refused and logged, the
// others name it.
func TestStrangerRank(t *testing.T) {
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
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			dir := newBoard()
			var log testkit.Journal
			errs := testkit.Each(3, func(rank int) error {
				cfg := testConfig(dir, rank, 3)
				cfg.Log = log.Logger()
				if rank == 2 {
					cfg.Log = nil
					tt.change(&cfg)
				}
				m, err := ConnectTCP(ctx, cfg)
				if err == nil {
					m.Close()
				}
				return err
			})
			for rank, err := range errs[:2] {
				var missing *MissingError
				if !errors.As(err, &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 2 {
					t.Errorf("rank %d: got %v, want only rank 2 to be missing", rank, err)
				}
			}
			if errs[2] == nil {
				t.Error("rank 2 is connected")
			}
			if !strings.Contains(log.String(), tt.logged) {
				t.Errorf("logged %q, want %q", log.String(), tt.logged)
			}
		})
	}
}

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
			dir := newBoard()
			done := make(chan error, 1)
			go func() {
				_, err := ConnectTCP(ctx, testConfig(dir, 0, 3))
				done <- err
			}()
			if got := claim(ctx, t, dir, 0, hello{2, 3}); got != welcome {
				t.Fatalf("the first rank 2 got answer %d", got)
			}
			var err error
			testkit.Within(t, testkit.Moment, func() { _, err = ConnectTCP(ctx, testConfig(dir, tt.rank, tt.size)) })
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

// claim proves itself to a rank as the one that hello says, and returns the answer.
func claim(ctx context.Context, t *testing.T, dir Directory, to int, h hello) answer {
	t.Helper()
	addr, err := dir.Get(ctx, addressKey(to))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", string(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	cfg := testConfig(dir, 0, 3)
	if _, err := auth.Client(ctx, conn, cfg.Secret, cfg.binding(), h.encode()); err != nil {
		t.Fatal(err)
	}
	var reply [1]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		t.Fatal(err)
	}
	return answer(reply[0])
}

func TestImpossibleAndDuplicateRanks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := newBoard()
	var log testkit.Journal
	done := make(chan error, 1)
	go func() {
		cfg := testConfig(dir, 1, 3)
		cfg.Log = log.Logger()
		_, err := ConnectTCP(ctx, cfg)
		done <- err
	}()
	for _, tt := range []struct {
		name string
		h    hello
		want answer
	}{
		{"itself", hello{1, 3}, impossible},
		{"lower", hello{0, 3}, impossible},
		{"beyond", hello{3, 3}, impossible},
		{"far_beyond", hello{1 << 31, 3}, impossible},
		{"other_size", hello{2, 4}, impossible},
		{"right", hello{2, 3}, welcome},
		{"again", hello{2, 3}, duplicate},
	} {
		if got := claim(ctx, t, dir, 1, tt.h); got != tt.want {
			t.Errorf("%s: answer %d, want %d", tt.name, got, tt.want)
		}
	}
	testkit.Eventually(t, "all refusals are logged", func() bool { return strings.Contains(log.String(), "so_far=6") })
	cancel()
	var missing *MissingError
	if err := <-done; !errors.As(err, &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 0 {
		t.Errorf("got %v, want only rank 0 to be missing", err)
	}
	for _, line := range []string{"rank 1 of 3: refused: no such rank", "rank 2 of 3: refused: a rank of that number is there already"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("logged %q, want %q", log.String(), line)
		}
	}
}

// Connections that send rubbish, or nothing, do not disturb a meeting, even
// when they are more than there is room for.
func TestStrangersDoNotDisturb(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := newBoard()
	var log testkit.Journal
	meshes := make([]*TCP, 3)
	connect := func(rank int) (err error) {
		cfg := testConfig(dir, rank, 3)
		cfg.Log = log.Logger()
		meshes[rank], err = ConnectTCP(ctx, cfg)
		return err
	}
	first := make(chan error, 1)
	go func() { first <- connect(0) }()
	addr, err := dir.Get(ctx, addressKey(0))
	if err != nil {
		t.Fatal(err)
	}
	rubbish := []string{"", "GET / HTTP/1.1\r\n\r\n", "ddpbatch\x00\x01", "ddpbatch\xff\xff", strings.Repeat("\xff", 5000)}
	for i := range room + 50 {
		conn, err := net.Dial("tcp", string(addr))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, rubbish[i%len(rubbish)])
	}
	errs := testkit.Each(2, func(i int) error { return connect(i + 1) })
	if err := errors.Join(append(errs, <-first)...); err != nil {
		t.Fatal(err)
	}
	for _, m := range meshes {
		m.Close()
	}
	if n := strings.Count(log.String(), "transport: connection refused"); n == 0 || n > 20 {
		t.Errorf("%d refusals are logged of %d, want some, but few", n, room+50)
	}
}

// brokenBoard has a store that fails.
type brokenBoard struct {
	*board
	set, get error
}

func (b brokenBoard) Set(ctx context.Context, key string, value []byte) error {
	if b.set != nil {
		return b.set
	}
	return b.board.Set(ctx, key, value)
}

func (b brokenBoard) Get(context.Context, string) ([]byte, error) { return nil, b.get }

func TestDirectoryFails(t *testing.T) {
	broken := errors.New("the store is on fire")
	for name, dir := range map[string]Directory{
		"set": brokenBoard{board: newBoard(), set: broken},
		"get": brokenBoard{board: newBoard(), get: broken},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ConnectTCP(t.Context(), testConfig(dir, 1, 2)); !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPublishedRubbish(t *testing.T) {
	dir := newBoard()
	dir.Set(t.Context(), addressKey(0), []byte("nowhere"))
	_, err := ConnectTCP(t.Context(), testConfig(dir, 1, 2))
	if err == nil || !strings.Contains(err.Error(), `look up rank 0: "nowhere" is no address`) {
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
	dir := newBoard()
	dir.Set(t.Context(), addressKey(0), []byte(l.Addr().String()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := ConnectTCP(ctx, testConfig(dir, 1, 2))
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
