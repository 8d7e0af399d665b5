package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
)

// proved is a connection that has proved itself to a rank as the one that hello says.
func proved(ctx context.Context, t *testing.T, dir Directory, to int, h hello) *sealedConn {
	t.Helper()
	conn, _ := knockAt(ctx, t, dir, to)
	text, err := dir.Get(ctx, addressKey(to))
	if err != nil {
		t.Fatal(err)
	}
	_, _, ticket, err := decodeEntry(text)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(dir, 0, 3)
	theirs, err := auth.Client(ctx, conn, cfg.key(ticket), cfg.binding(), h.encode())
	if err != nil {
		t.Fatal(err)
	}
	return &sealedConn{conn.(*net.TCPConn), newSealing(cfg.key(ticket), h.encode(), theirs, true)}
}

// claim proves itself to a rank as the one that hello says, and returns the answer, and the connection.
func claim(ctx context.Context, t *testing.T, dir Directory, to int, h hello) (answer, *sealedConn) {
	t.Helper()
	conn := proved(ctx, t, dir, to, h)
	reply, err := conn.keys.hear(conn)
	if err != nil {
		t.Fatal(err)
	}
	return answer(reply), conn
}

func confirm(t *testing.T, conn *sealedConn, use byte) {
	t.Helper()
	if err := conn.keys.say(conn, use); err != nil {
		t.Fatal(err)
	}
}

// seatAs makes one connection, which must be welcome.
func seatAs(ctx context.Context, t *testing.T, dir Directory, to int, h hello) *sealedConn {
	t.Helper()
	got, conn := claim(ctx, t, dir, to, h)
	if got != welcome {
		t.Fatalf("stream %d of rank %d got answer %d", h.stream, h.rank, got)
	}
	confirm(t, conn, useNoMemory)
	return conn
}

// seatAll makes all connections of a rank, and returns them: the control link's, then the streams.
func seatAll(ctx context.Context, t *testing.T, dir Directory, to int, h hello) []*sealedConn {
	t.Helper()
	var conns []*sealedConn
	for h.stream = range h.streams + 1 {
		conns = append(conns, seatAs(ctx, t, dir, to, h))
	}
	return conns
}

// seatFirmly does so, and waits until all are counted: a stream is a stray then if it comes again. The meeting must go on after it.
func seatFirmly(ctx context.Context, t *testing.T, dir Directory, to int, h hello) {
	t.Helper()
	seatAll(ctx, t, dir, to, h)
	for h.stream = 1; h.stream <= h.streams; h.stream++ {
		testkit.Eventually(t, "a stream that is there already is refused", func() bool {
			got, _ := claim(ctx, t, dir, to, h)
			return got == stray
		})
	}
}

// met is what a rank's Connect returned.
type met struct {
	fabric *Sockets
	err    error
}

// meeter is a rank of 3 that meets the others.
func meeter(ctx context.Context, dir Directory, rank int) (*testkit.Journal, chan met) {
	log, done := new(testkit.Journal), make(chan met, 1)
	go func() {
		cfg := testConfig(dir, rank, 3)
		cfg.Log = log.Logger()
		fabric, err := Connect(ctx, cfg)
		done <- met{fabric, err}
	}()
	return log, done
}

// Who is refused, and who gets in, in this order.
func TestImpossibleAndDuplicateRanks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := store.NewMemory()
	log, done := meeter(ctx, dir, 1)
	other := nonce{1}
	for _, tt := range []struct {
		name   string
		h      hello
		want   answer
		logged string // of the first few alone: others may go unlogged
	}{
		{"itself", hello{rank: 1, size: 3, streams: 1}, impossible, "rank 1 of 3: refused: no such rank is due there"},
		{"lower", hello{rank: 0, size: 3, streams: 1}, impossible, ""},
		{"beyond", hello{rank: 3, size: 3, streams: 1}, impossible, ""},
		{"far_beyond", hello{rank: 1 << 31, size: 3, streams: 1}, impossible, ""},
		{"other_size", hello{rank: 2, size: 4, streams: 1}, impossible, ""},
		{"no_streams", hello{rank: 2, size: 3}, impossible, ""},
		{"many_streams", hello{rank: 2, size: 3, streams: MaxStreams + 1}, impossible, ""},
		{"endless_streams", hello{rank: 2, size: 3, streams: 1<<32 - 1}, impossible, ""},
		{"stream_before_control", hello{rank: 2, size: 3, streams: 1, stream: 1}, stray, "rank 2 of 3: nobody waits for this connection"},
		{"stream_of_nobody", hello{rank: 1 << 31, size: 3, streams: 1, stream: 1}, stray, ""},
		{"right", hello{rank: 2, size: 3, streams: 2, try: 1}, welcome, ""},
		{"again", hello{rank: 2, size: 3, streams: 2, try: 2, nonce: other}, stray, ""}, // until that one confirms
		{"same_try", hello{rank: 2, size: 3, streams: 2, try: 1}, stray, ""},
		{"older_try", hello{rank: 2, size: 3, streams: 2, try: 0}, stray, ""},
		{"next_try", hello{rank: 2, size: 3, streams: 2, try: 2}, welcome, ""},
		{"stream_beyond", hello{rank: 2, size: 3, streams: 2, try: 2, stream: 3}, stray, ""},
		{"stream_far_beyond", hello{rank: 2, size: 3, streams: 2, try: 2, stream: 1<<32 - 1}, stray, ""},
		{"stream_of_another", hello{rank: 2, size: 3, streams: 2, try: 2, stream: 1, nonce: other}, stray, ""},
		{"stream_of_older_try", hello{rank: 2, size: 3, streams: 2, try: 1, stream: 1}, stray, ""},
		{"stream_of_newer_try", hello{rank: 2, size: 3, streams: 2, try: 3, stream: 1}, stray, ""},
	} {
		if got, _ := claim(ctx, t, dir, 1, tt.h); got != tt.want {
			t.Errorf("%s: answer %d, want %d", tt.name, got, tt.want)
		}
		if tt.logged != "" {
			wantLogged(t, log, tt.logged)
		}
	}
	seatFirmly(ctx, t, dir, 1, hello{rank: 2, size: 3, streams: 2, try: 3})
	wantMissing(t, cancel, done, 0)
}

// A rank that is there keeps another process that says it is the same one out, whatever try that makes, and what it wants.
func TestDuplicateRank(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := store.NewMemory()
	log, done := meeter(ctx, dir, 1)
	h := hello{rank: 2, size: 3, streams: 2, try: 3}
	seatFirmly(ctx, t, dir, 1, h)
	h.nonce = nonce{1}
	for h.try = range 6 {
		if got, _ := claim(ctx, t, dir, 1, h); got != duplicate {
			t.Errorf("try %d: answer %d, want %d", h.try, got, duplicate)
		}
	}
	wantLogged(t, log, "rank 2 of 3: refused: a rank of that number is there already")
	wantMissing(t, cancel, done, 0)
}

// wantLogged waits: a refusal is logged after it is told.
func wantLogged(t *testing.T, log *testkit.Journal, text string) {
	t.Helper()
	testkit.Eventually(t, "there is logged "+text, func() bool { return strings.Contains(log.String(), text) })
}

// wantMissing ends a meeting, and checks who alone was missing then.
func wantMissing(t *testing.T, cancel func(), done chan met, rank int) {
	t.Helper()
	cancel()
	var missing *MissingError
	if got := <-done; !errors.As(got.err, &missing) || !slices.Equal(missing.Missing, []int{rank}) {
		t.Errorf("got %v, want only rank %d to be missing", got.err, rank)
	}
}

// A rank of which something is missing when the waiting ends is named, with what that is.
func TestHalfSeated(t *testing.T) {
	for _, tt := range []struct {
		name string
		come func(ctx context.Context, dir Directory)
		text string
	}{
		{"unconfirmed", func(ctx context.Context, dir Directory) {
			claim(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 2})
		}, "rank 2 (it has connected, but has not confirmed that it was let in)"},
		{"control_alone", func(ctx context.Context, dir Directory) {
			seatAs(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 2})
			// What is welcome as a stream shows that the control link has been seated.
			claim(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 2, stream: 1})
		}, "rank 2 (0 of its 2 data streams are there)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			dir := store.NewMemory()
			_, done := meeter(ctx, dir, 0)
			tt.come(t.Context(), dir)
			cancel()
			var got met
			testkit.Within(t, testkit.Patience, func() { got = <-done })
			if got.err == nil || !strings.Contains(got.err.Error(), tt.text) {
				t.Errorf("got %v, want %q", got.err, tt.text)
			}
		})
	}
}

// A process that is let in and never confirms does not keep another one of its rank out.
func TestHalfOpenControl(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := store.NewMemory()
	_, done := meeter(ctx, dir, 0)
	h := hello{rank: 2, size: 3, streams: 1}
	_, half := claim(ctx, t, dir, 0, h)
	h.nonce = nonce{1}
	if got, _ := claim(ctx, t, dir, 0, h); got != stray {
		t.Errorf("while it may still confirm: answer %d, want %d", got, stray)
	}
	half.Close()
	testkit.Eventually(t, "another one is let in", func() bool {
		got, _ := claim(ctx, t, dir, 0, h)
		return got == welcome
	})
	cancel()
	if got := <-done; got.err == nil {
		t.Error("it met somebody")
	}
}

// A stream waits for its control link to be confirmed. Where that breaks, it is refused, so that its rank begins anew.
func TestStreamOfBrokenControl(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := store.NewMemory()
	_, done := meeter(ctx, dir, 0)
	h := hello{rank: 2, size: 3, streams: 1}
	_, control := claim(ctx, t, dir, 0, h)
	h.stream = 1
	conn := proved(ctx, t, dir, 0, h)
	control.Close()
	if reply, err := conn.keys.hear(conn); err != nil || answer(reply) != stray {
		t.Errorf("answer %d, %v", reply, err)
	}
	cancel()
	if got := <-done; got.err == nil {
		t.Error("it met somebody")
	}
}

// A rank that was there with all its connections, and comes again, is there with its new ones.
func TestLaterTryIsTheOne(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := store.NewMemory()
	_, done := meeter(ctx, dir, 0)
	first := seatAll(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 2, try: 1})
	second := seatAll(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 1, try: 2})
	for i, conn := range first {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("connection %d of the first try is not closed", i)
		}
	}
	seatAll(ctx, t, dir, 0, hello{rank: 1, size: 3, streams: 1, try: 1})
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	f := got.fabric
	defer f.Close()
	for i, l := range []Link{f.Control(2), f.Data(2)} {
		write(t, l, "x")
		want := 1
		if i == 0 {
			want += recordHead + recordTag // the control link's are encrypted
		}
		if n, err := second[i].Read(make([]byte, 100)); n != want || err != nil {
			t.Errorf("connection %d of the second try read %d bytes, %v", i, n, err)
		}
	}
}
