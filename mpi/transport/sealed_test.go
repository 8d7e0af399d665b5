package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
)

// dialledPair returns the two ends of a connection.
func dialledPair(t testing.TB) (dialled, accepted *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near.(*net.TCPConn), far.(*net.TCPConn)
}

// sealedLinkOver returns one side's link over a connection.
func sealedLinkOver(t testing.TB, conn *net.TCPConn, dialled bool) *sealedLink {
	t.Helper()
	tcp, err := takeOver(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.close() })
	return newSealedLink(tcp, newSealing(testSecret, []byte("a"), []byte("b"), dialled), controlRecord)
}

// A sealed link moves bytes in pieces of all sizes, even through sockets that are not read at first.
func TestSealedLinkMovesBytesBothWays(t *testing.T) {
	near, far := dialledPair(t)
	a, b := sealedLinkOver(t, near, true), sealedLinkOver(t, far, false)
	random := rand.NewChaCha8([32]byte{1})
	for _, way := range [][2]*sealedLink{{a, b}, {b, a}} {
		sent := make([]byte, 32<<20)
		random.Read(sent)
		var got []byte
		filled := false
		buf := make([]byte, 70_000)
		pick := rand.New(random)
		for rest := sent; len(got) < len(sent); { // rest ends with the byte that the link holds
			head := rest[:min(len(rest), pick.IntN(40))]
			body := rest[len(head):min(len(rest), len(head)+pick.IntN(60_000))]
			n, err := way[0].Write(head, body)
			if err != nil {
				t.Fatal(err)
			}
			filled = filled || n < len(head)+len(body)
			if rest = rest[n:]; !filled && len(rest) > 0 {
				continue
			}
			n, err = way[1].Read(buf[:1+pick.IntN(len(buf)-1)])
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
		}
		if !bytes.Equal(got, sent) {
			t.Error("other bytes came than were sent")
		}
		if !filled {
			t.Error("there was always room")
		}
	}
}

// TestSealedLinkReportsItsEnd ends a connection between two records and within one, and checks the error of the link.
func TestSealedLinkReportsItsEnd(t *testing.T) {
	for cut, want := range map[int]error{0: io.EOF, 1: io.ErrUnexpectedEOF, 10: io.ErrUnexpectedEOF} {
		near, far := dialledPair(t)
		b := sealedLinkOver(t, far, false)
		keys := newSealing(testSecret, []byte("a"), []byte("b"), true)
		for size := range [2]int{} {
			var buf [100]byte
			record := keys.out.seal(buf[:], recordHead+5)
			if size == 1 {
				record = record[:cut]
			}
			near.Write(record)
		}
		near.Close()
		got, err := readUntil(t, b)
		if len(got) != 5 || err != want {
			t.Errorf("cut after %d bytes: %d bytes, error %v, want %v", cut, len(got), err, want)
		}
	}
}

// readUntil reads until the link returns an error.
func readUntil(t testing.TB, l *sealedLink) (got []byte, err error) {
	t.Helper()
	testkit.Eventually(t, "the link fails", func() bool {
		buf := make([]byte, 1000)
		var n int
		n, err = l.Read(buf)
		got = append(got, buf[:n]...)
		return err != nil
	})
	return got, err
}

// TestRelayBetweenRanks has an attacker on the way change, repeat, drop, swap and send back what a rank wrote. The link returns none of
// that data.
func TestRelayBetweenRanks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(records [][]byte, other []byte) [][]byte
		want   string // what is read before the error
	}{
		"a bit":          {func(r [][]byte, _ []byte) [][]byte { r[1][recordHead] ^= 1; return r }, "one"},
		"the tag":        {func(r [][]byte, _ []byte) [][]byte { r[1][len(r[1])-1] ^= 1; return r }, "one"},
		"a length":       {func(r [][]byte, _ []byte) [][]byte { r[1][1]--; return r }, "one"},
		"no length":      {func(r [][]byte, _ []byte) [][]byte { r[1][0], r[1][1] = 0, 0; return r }, "one"},
		"a great length": {func(r [][]byte, _ []byte) [][]byte { r[1][0] = 0xff; return r }, "one"},
		"repeated":       {func(r [][]byte, _ []byte) [][]byte { return append(r[:1:1], r[0]) }, "one"},
		"left out":       {func(r [][]byte, _ []byte) [][]byte { return r[1:] }, ""},
		"swapped":        {func(r [][]byte, _ []byte) [][]byte { return [][]byte{r[1], r[0]} }, ""},
		"sent back":      {func(r [][]byte, other []byte) [][]byte { return [][]byte{other} }, ""},
		"in the clear": {func(r [][]byte, _ []byte) [][]byte {
			return append(r, []byte("\x00\x20plaintext plaintext plaintext 32"))
		}, "onetwo"},
		"another rank's":  {nil, ""},
		"another attempt": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := dialledPair(t)
			b := sealedLinkOver(t, far, false)
			keys := newSealing(testSecret, []byte("a"), []byte("b"), true)
			switch name {
			case "another rank's":
				keys = newSealing(testSecret, []byte("c"), []byte("b"), true)
			case "another attempt":
				keys = newSealing(testSecret.Derive("2"), []byte("a"), []byte("b"), true)
			}
			seal := func(d *direction, text string) []byte {
				buf := make([]byte, controlRecord)
				return d.seal(buf, recordHead+copy(buf[recordHead:], text))
			}
			records := [][]byte{seal(&keys.out, "one"), seal(&keys.out, "two")}
			if c.change != nil {
				own := newSealing(testSecret, []byte("a"), []byte("b"), false)
				records = c.change(records, seal(&own.out, "one"))
			}
			for _, record := range records {
				near.Write(record)
			}
			got, err := readUntil(t, b)
			if string(got) != c.want || !errors.Is(err, errForged) {
				t.Errorf("read %q, %v; want %q and errForged", got, err, c.want)
			}
			if n, again := b.Read(make([]byte, 10)); n != 0 || !errors.Is(again, errForged) {
				t.Errorf("then %d bytes, %v", n, again)
			}
		})
	}
}

// TestTicketIsNeeded checks that the key of a connection depends on the run's secret and on the ticket that the accepting rank has
// published.
func TestTicketIsNeeded(t *testing.T) {
	cfg := testConfig(nil, 0, 2)
	ticket := testSecret.Derive("ticket")
	other := cfg
	other.Secret[0]++
	if cfg.key(ticket) == cfg.Secret || cfg.key(ticket) == cfg.key(ticket.Derive("2")) || cfg.key(ticket) == other.key(ticket) {
		t.Error("the key does not follow from both the secret and the ticket")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := store.NewMemory()
	_, done := connectRank(ctx, dir, 1)
	conn, _ := dialPort(ctx, t, dir, 1)
	h := hello{rank: 2, size: 3, streams: 1}
	if _, err := auth.Client(ctx, conn, testSecret, testConfig(dir, 2, 3).binding(), h.encode()); !errors.Is(err, auth.ErrRefused) {
		t.Errorf("with the run's secret alone: %v, want ErrRefused", err)
	}
	cancel()
	<-done
}

// TestControlIsEncrypted checks the bytes that arrive on the control link of a rank before they are decrypted.
func TestControlIsEncrypted(t *testing.T) {
	fabrics := connectRanks(t, 2, share(ShareNever))
	checkEncrypted(t, fabrics[0].Control(1), fabrics[1].control[0])
}

// TestDataIsEncrypted checks those of the data link of ranks that encrypt it.
func TestDataIsEncrypted(t *testing.T) {
	for _, streams := range []int{1, 2} {
		fabrics := connectRanks(t, 2, func(c *Config) { c.Sharing, c.Encrypt, c.Streams = ShareNever, true, streams })
		first := fabrics[1].Data(0)
		if l, ok := first.(*stripedLink); ok {
			first = l.streams[0]
		}
		checkEncrypted(t, fabrics[0].Data(1), first.(*sealedLink))
	}
}

// checkEncrypted writes a text, and checks the bytes that arrive before they are decrypted.
func checkEncrypted(t *testing.T, from Link, to *sealedLink) {
	t.Helper()
	const text = "a word between ranks"
	if n, err := from.Write([]byte(text), nil); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	buf := make([]byte, 1000)
	var n int
	testkit.Eventually(t, "it arrives", func() bool {
		var err error
		n, _, err = unix.Recvfrom(to.tcp.fd, buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err == nil && n > 0
	})
	if n != recordHead+len(text)+recordTag || bytes.Contains(buf[:n], []byte("word")) {
		t.Errorf("%d bytes were sent: %q", n, buf[:n])
	}
	testkit.Eventually(t, "it is read", func() bool {
		n, _ := to.Read(buf)
		return string(buf[:n]) == text
	})
}

// TestEncryptDiffers checks that a rank refuses another that knows the secret and the ticket, but differs in whether data is encrypted.
func TestEncryptDiffers(t *testing.T) {
	for _, encrypts := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		dir, done := store.NewMemory(), make(chan error, 1)
		cfg := testConfig(dir, 0, 2)
		cfg.Encrypt = encrypts
		go func() {
			fabric, err := Connect(ctx, cfg)
			if err == nil {
				fabric.Close()
			}
			done <- err
		}()
		conn, _ := dialPort(ctx, t, dir, 0)
		text, err := dir.Get(ctx, addressKey(0))
		if err != nil {
			t.Fatal(err)
		}
		_, _, ticket, err := decodeAddressRecord(text)
		if err != nil {
			t.Fatal(err)
		}
		other, h := cfg, hello{rank: 1, size: 2, streams: 1}
		other.Encrypt = !encrypts
		if _, err := auth.Client(ctx, conn, cfg.key(ticket), other.binding(), h.encode()); !errors.Is(err, auth.ErrRefused) {
			t.Errorf("encrypts %t, the other %t: %v, want ErrRefused", encrypts, !encrypts, err)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("they have met")
		}
	}
}

// BenchmarkSealedLink sends a small frame there and back, with and without a seal.
func BenchmarkSealedLink(b *testing.B) {
	near, far := dialledPair(b)
	l, m := sealedLinkOver(b, near, true), sealedLinkOver(b, far, false)
	for name, way := range map[string][2]Link{"sealed": {l, m}, "plain": {l.tcp, m.tcp}} {
		b.Run(name, func(b *testing.B) {
			frame, buf := make([]byte, 64), make([]byte, 4096)
			for b.Loop() {
				for i := range way {
					way[i].Write(frame, nil)
					for n := 0; n < len(frame); {
						k, err := way[1-i].Read(buf)
						if err != nil {
							b.Fatal(err)
						}
						n += k
					}
				}
			}
		})
	}
}
