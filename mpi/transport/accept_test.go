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

// proved returns a connection that has proved itself to a rank as the peer that hello describes.
func proved(ctx context.Context, t *testing.T, dir Directory, to int, h hello) *sealedConn {
	t.Helper()
	conn, _ := dialPort(ctx, t, dir, to)
	text, err := dir.Get(ctx, addressKey(to))
	if err != nil {
		t.Fatal(err)
	}
	_, _, ticket, err := decodeAddressRecord(text)
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

// dialAs connects to a rank as the peer that hello describes. It returns the answer and the connection.
func dialAs(ctx context.Context, t *testing.T, dir Directory, to int, h hello) (answer, *sealedConn) {
	t.Helper()
	conn := proved(ctx, t, dir, to, h)
	reply, err := conn.keys.receiveByte(conn)
	if err != nil {
		t.Fatal(err)
	}
	return answer(reply), conn
}

func confirm(t *testing.T, conn *sealedConn, use byte) {
	t.Helper()
	if err := conn.keys.sendByte(conn, use); err != nil {
		t.Fatal(err)
	}
}

// joinAs makes one connection, which must be admitted.
func joinAs(ctx context.Context, t *testing.T, dir Directory, to int, h hello) *sealedConn {
	t.Helper()
	got, conn := dialAs(ctx, t, dir, to, h)
	if got != answerWelcome {
		t.Fatalf("stream %d of rank %d got answer %d", h.stream, h.rank, got)
	}
	confirm(t, conn, useNoMemory)
	return conn
}

// joinAll makes all connections of a rank, and returns them: first that of the control link, then the streams.
func joinAll(ctx context.Context, t *testing.T, dir Directory, to int, h hello) []*sealedConn {
	t.Helper()
	var conns []*sealedConn
	for h.stream = range h.streams + 1 {
		conns = append(conns, joinAs(ctx, t, dir, to, h))
	}
	return conns
}

// joinAndWait makes all connections of a rank, and waits until all of them count, so that another connection for a stream is stale. Connect
// must still be waiting after that.
func joinAndWait(ctx context.Context, t *testing.T, dir Directory, to int, h hello) {
	t.Helper()
	joinAll(ctx, t, dir, to, h)
	for h.stream = 1; h.stream <= h.streams; h.stream++ {
		testkit.Eventually(t, "a stream that is there already is refused", func() bool {
			got, _ := dialAs(ctx, t, dir, to, h)
			return got == answerStale
		})
	}
}

// connected is the result of a rank's Connect.
type connected struct {
	fabric *Sockets
	err    error
}

// connectRank runs the Connect of a rank of 3.
func connectRank(ctx context.Context, dir Directory, rank int) (*testkit.Journal, chan connected) {
	log, done := new(testkit.Journal), make(chan connected, 1)
	go func() {
		cfg := testConfig(dir, rank, 3)
		cfg.Log = log.Logger()
		fabric, err := Connect(ctx, cfg)
		done <- connected{fabric, err}
	}()
	return log, done
}

// The connections are refused or admitted, in this order.
func TestImpossibleAndDuplicateRanksAreRefused(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := store.NewMemory()
	log, done := connectRank(ctx, dir, 1)
	other := nonce{1}
	for _, tt := range []struct {
		name   string
		h      hello
		want   answer
		logged string // only checked for the first few: others may not be logged
	}{
		{"itself", hello{rank: 1, size: 3, streams: 1}, answerImpossible,
			"rank 1 of 3: refused: the accepting rank does not expect the dialing rank"},
		{"lower", hello{rank: 0, size: 3, streams: 1}, answerImpossible, ""},
		{"beyond", hello{rank: 3, size: 3, streams: 1}, answerImpossible, ""},
		{"far_beyond", hello{rank: 1 << 31, size: 3, streams: 1}, answerImpossible, ""},
		{"other_size", hello{rank: 2, size: 4, streams: 1}, answerImpossible, ""},
		{"no_streams", hello{rank: 2, size: 3}, answerImpossible, ""},
		{"many_streams", hello{rank: 2, size: 3, streams: MaxStreams + 1}, answerImpossible, ""},
		{"endless_streams", hello{rank: 2, size: 3, streams: 1<<32 - 1}, answerImpossible, ""},
		{"stream_before_control", hello{rank: 2, size: 3, streams: 1, stream: 1}, answerStale,
			"rank 2 of 3: nobody waits for this connection"},
		{"stream_of_nobody", hello{rank: 1 << 31, size: 3, streams: 1, stream: 1}, answerStale, ""},
		{"right", hello{rank: 2, size: 3, streams: 2, try: 1}, answerWelcome, ""},
		{"again", hello{rank: 2, size: 3, streams: 2, try: 2, nonce: other}, answerStale, ""}, // until that try confirms
		{"same_try", hello{rank: 2, size: 3, streams: 2, try: 1}, answerStale, ""},
		{"older_try", hello{rank: 2, size: 3, streams: 2, try: 0}, answerStale, ""},
		{"next_try", hello{rank: 2, size: 3, streams: 2, try: 2}, answerWelcome, ""},
		{"stream_beyond", hello{rank: 2, size: 3, streams: 2, try: 2, stream: 3}, answerStale, ""},
		{"stream_far_beyond", hello{rank: 2, size: 3, streams: 2, try: 2, stream: 1<<32 - 1}, answerStale, ""},
		{"stream_of_another", hello{rank: 2, size: 3, streams: 2, try: 2, stream: 1, nonce: other}, answerStale, ""},
		{"stream_of_older_try", hello{rank: 2, size: 3, streams: 2, try: 1, stream: 1}, answerStale, ""},
		{"stream_of_newer_try", hello{rank: 2, size: 3, streams: 2, try: 3, stream: 1}, answerStale, ""},
	} {
		if got, _ := dialAs(ctx, t, dir, 1, tt.h); got != tt.want {
			t.Errorf("%s: answer %d, want %d", tt.name, got, tt.want)
		}
		if tt.logged != "" {
			wantLogged(t, log, tt.logged)
		}
	}
	joinAndWait(ctx, t, dir, 1, hello{rank: 2, size: 3, streams: 2, try: 3})
	wantMissing(t, cancel, done, 0)
}

// A rank that is connected keeps out another process with the same rank, whatever the number of its try.
func TestDuplicateRankIsKeptOut(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := store.NewMemory()
	log, done := connectRank(ctx, dir, 1)
	h := hello{rank: 2, size: 3, streams: 2, try: 3}
	joinAndWait(ctx, t, dir, 1, h)
	h.nonce = nonce{1}
	for h.try = range 6 {
		if got, _ := dialAs(ctx, t, dir, 1, h); got != answerDuplicate {
			t.Errorf("try %d: answer %d, want %d", h.try, got, answerDuplicate)
		}
	}
	wantLogged(t, log, "rank 2 of 3: refused: another process has already connected as the dialing rank")
	wantMissing(t, cancel, done, 0)
}

// wantLogged waits, because a refusal is logged after it is sent.
func wantLogged(t *testing.T, log *testkit.Journal, text string) {
	t.Helper()
	testkit.Eventually(t, "there is logged "+text, func() bool { return strings.Contains(log.String(), text) })
}

// wantMissing ends a Connect, and checks that only the given rank was missing.
func wantMissing(t *testing.T, cancel func(), done chan connected, rank int) {
	t.Helper()
	cancel()
	var missing *MissingError
	if got := <-done; !errors.As(got.err, &missing) || !slices.Equal(missing.Missing, []int{rank}) {
		t.Errorf("got %v, want only rank %d to be missing", got.err, rank)
	}
}

// When Connect gives up, its error names every rank that is not fully connected, and what is missing.
func TestIncompleteRanksAreNamed(t *testing.T) {
	for _, tt := range []struct {
		name string
		come func(ctx context.Context, dir Directory)
		text string
	}{
		{"unconfirmed", func(ctx context.Context, dir Directory) {
			dialAs(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 2})
		}, "rank 2 (it has connected, but has not confirmed the welcome)"},
		{"control_alone", func(ctx context.Context, dir Directory) {
			joinAs(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 2})
			// A stream is admitted only if the control link is there.
			dialAs(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 2, stream: 1})
		}, "rank 2 (0 of its 2 data streams are connected)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			dir := store.NewMemory()
			_, done := connectRank(ctx, dir, 0)
			tt.come(t.Context(), dir)
			cancel()
			var got connected
			testkit.Within(t, testkit.Patience, func() { got = <-done })
			if got.err == nil || !strings.Contains(got.err.Error(), tt.text) {
				t.Errorf("got %v, want %q", got.err, tt.text)
			}
		})
	}
}

// A process that is admitted and never confirms does not keep another process of its rank out.
func TestUnconfirmedProcessDoesNotBlockItsRank(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := store.NewMemory()
	_, done := connectRank(ctx, dir, 0)
	h := hello{rank: 2, size: 3, streams: 1}
	_, half := dialAs(ctx, t, dir, 0, h)
	h.nonce = nonce{1}
	if got, _ := dialAs(ctx, t, dir, 0, h); got != answerStale {
		t.Errorf("while it may still confirm: answer %d, want %d", got, answerStale)
	}
	half.Close()
	testkit.Eventually(t, "another one is let in", func() bool {
		got, _ := dialAs(ctx, t, dir, 0, h)
		return got == answerWelcome
	})
	cancel()
	if got := <-done; got.err == nil {
		t.Error("it met somebody")
	}
}

// A stream waits until its control link is confirmed. If the control link breaks, the stream is refused, so that its rank starts again.
func TestStreamOfBrokenControlIsRefused(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := store.NewMemory()
	_, done := connectRank(ctx, dir, 0)
	h := hello{rank: 2, size: 3, streams: 1}
	_, control := dialAs(ctx, t, dir, 0, h)
	h.stream = 1
	conn := proved(ctx, t, dir, 0, h)
	control.Close()
	if reply, err := conn.keys.receiveByte(conn); err != nil || answer(reply) != answerStale {
		t.Errorf("answer %d, %v", reply, err)
	}
	cancel()
	if got := <-done; got.err == nil {
		t.Error("it met somebody")
	}
}

// If a rank was connected with all its connections, and connects again, its new connections count.
func TestLaterTryIsTheOne(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := store.NewMemory()
	_, done := connectRank(ctx, dir, 0)
	first := joinAll(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 2, try: 1})
	second := joinAll(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 1, try: 2})
	for i, conn := range first {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("connection %d of the first try is not closed", i)
		}
	}
	joinAll(ctx, t, dir, 0, hello{rank: 1, size: 3, streams: 1, try: 1})
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
			want += recordHead + recordTag // the control link is encrypted
		}
		if n, err := second[i].Read(make([]byte, 100)); n != want || err != nil {
			t.Errorf("connection %d of the second try read %d bytes, %v", i, n, err)
		}
	}
}

// Connect returns at once if waiting cannot help: if the rank has another world size, or if another process has the same rank.
func TestImpossibleGroupEndsConnect(t *testing.T) {
	for _, tt := range []struct {
		name       string
		rank, size int // the rank that connects to rank 0 of 3, which rank 2 has joined
		text       string
	}{
		{"size", 1, 2, "rank 0 is in a world of 3 ranks, but this one is in a world of 2: start all ranks with the same world size"},
		{"duplicate", 2, 3, ": refused: another process has already connected as the dialing rank"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			dir := store.NewMemory()
			done := make(chan error, 1)
			go func() {
				_, err := Connect(ctx, testConfig(dir, 0, 3))
				done <- err
			}()
			joinAndWait(ctx, t, dir, 0, hello{rank: 2, size: 3, streams: 1, try: 1})
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
