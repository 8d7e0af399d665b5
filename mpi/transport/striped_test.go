package transport

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// tcpPair is both ends of a TCP connection.
func tcpPair(t testing.TB) (a, b *tcpLink) {
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
	var links [2]*tcpLink
	for i, conn := range []net.Conn{near, far} {
		if err := tune(conn.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
		if links[i], err = takeOver(conn.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, l := range links {
			if l.fd >= 0 {
				l.close()
			}
		}
	})
	return links[0], links[1]
}

// shut closes a connection before its time; linger 0 resets it (socket(7)).
func shut(t testing.TB, l *tcpLink, reset bool) {
	t.Helper()
	if reset {
		if err := unix.SetsockoptLinger(l.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	l.fd = -1
}

func stripedPair(t testing.TB, streams, cell int) (a, b *stripedLink) {
	t.Helper()
	near, far := make([]Link, streams), make([]Link, streams)
	for i := range near {
		near[i], far[i] = tcpPair(t)
	}
	return newStripedLink(near, cell), newStripedLink(far, cell)
}

// numbered is n bytes of which no two near each other are alike in their neighbourhood.
func numbered(n int) []byte {
	out := make([]byte, n)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
}

// Whatever the pieces in which bytes are written and read, they come out in their order, both ways at once.
func TestStripedOrder(t *testing.T) {
	seed := rand.Uint64()
	for _, streams := range []int{2, 3, 4, 16} {
		for _, cell := range []int{1, 2, 7, 64, 1000} {
			rng := rand.New(rand.NewPCG(seed, uint64(streams*10_000+cell)))
			a, b := stripedPair(t, streams, cell)
			sent := numbered(40*cell + rng.IntN(2000))
			ends, wrote, read := [2]*stripedLink{a, b}, [2]int{}, [2][]byte{}
			testkit.Eventually(t, "all bytes come", func() bool {
				for range 100 {
					way, size := rng.IntN(2), rng.IntN(3*cell+2)
					if rng.IntN(2) == 0 {
						part := sent[wrote[way]:min(wrote[way]+size, len(sent))]
						cut := rng.IntN(len(part) + 1)
						n, err := ends[way].Write(part[:cut], part[cut:])
						if err != nil || n > len(part) {
							t.Fatalf("seed %d, %d streams, cells of %d: wrote %d bytes of %d, %v", seed, streams, cell, n, len(part), err)
						}
						wrote[way] += n
						continue
					}
					buf := make([]byte, size)
					n, err := ends[1-way].Read(buf)
					if err != nil {
						t.Fatalf("seed %d, %d streams, cells of %d: %v", seed, streams, cell, err)
					}
					read[way] = append(read[way], buf[:n]...)
				}
				return len(read[0]) == len(sent) && len(read[1]) == len(sent)
			})
			if !bytes.Equal(read[0], sent) || !bytes.Equal(read[1], sent) {
				t.Fatalf("seed %d, %d streams, cells of %d: other bytes came out", seed, streams, cell)
			}
		}
	}
}

// By hand: 3 streams, cells of 4.
func TestStripedLayout(t *testing.T) {
	a, b := stripedPair(t, 3, 4)
	if n, err := a.Write([]byte("abcdef"), []byte("ghijklmnopqrst")); n != 20 || err != nil {
		t.Fatal(n, err)
	}
	for i, want := range []string{"abcdmnop", "efghqrst", "ijkl"} {
		if got := drain(t, b.streams[i], len(want)); string(got) != want {
			t.Errorf("stream %d had %q, want %q", i, got, want)
		}
	}
}

// An end at any point is told after the last byte before it, and again and again; so is a reset.
func TestStripedEnds(t *testing.T) {
	const streams, cell = 3, 4
	for sent := range 3 * streams * cell {
		for _, reset := range []bool{false, true} {
			a, b := stripedPair(t, streams, cell)
			text := numbered(sent)
			if n, err := a.Write(nil, text); n != sent || err != nil {
				t.Fatal(n, err)
			}
			last := a.out.stream
			if reset { // it may overtake what was sent, so that only the others are sure to arrive
				drainAll(t, b, text)
			}
			for i, l := range a.streams {
				shut(t, l.(*tcpLink), reset && i == last)
			}
			if !reset {
				drainAll(t, b, text)
			}
			for range 3 {
				var err error
				testkit.Eventually(t, "the end is told", func() bool {
					var n int
					if n, err = b.Read(make([]byte, 100)); n != 0 {
						t.Fatalf("after %d bytes came %d more", sent, n)
					}
					return err != nil
				})
				if want := map[bool]error{false: io.EOF, true: unix.ECONNRESET}[reset]; !errors.Is(err, want) {
					t.Errorf("after %d bytes: %v, want %v", sent, err, want)
				}
			}
			testkit.Eventually(t, "writing fails", func() bool { _, err := b.Write(make([]byte, streams*cell), nil); return err != nil })
		}
	}
}

func drainAll(t testing.TB, l Link, want []byte) {
	t.Helper()
	if got := drain(t, l, len(want)); !bytes.Equal(got, want) {
		t.Fatalf("%x came, want %x", got, want)
	}
}

// Of a stream that is reset while others go on, what comes before its turn is still read, and then the reset.
func TestStripedResetInTheMiddle(t *testing.T) {
	const cell = 4
	a, b := stripedPair(t, 3, cell)
	text := numbered(2 * cell)
	if n, err := a.Write(nil, text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	shut(t, a.streams[2].(*tcpLink), true)
	drainAll(t, b, text)
	testkit.Eventually(t, "the reset is told", func() bool { _, err := b.Read(make([]byte, 100)); return errors.Is(err, unix.ECONNRESET) })
	if _, err := b.Read(make([]byte, 100)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("then %v", err)
	}
}

// An error that comes with bytes is told after them.
func TestStripedReadsBeforeItFails(t *testing.T) {
	a, b := stripedPair(t, 2, 4)
	write(t, a, "abcdef")
	for _, l := range a.streams {
		shut(t, l.(*tcpLink), false)
	}
	buf := make([]byte, 100)
	got := 0
	var err error
	testkit.Eventually(t, "the end is told", func() bool {
		var n int
		n, err = b.Read(buf[got:])
		if n > 0 && err != nil {
			t.Fatalf("%d bytes and %v", n, err)
		}
		got += n
		return err != nil
	})
	if string(buf[:got]) != "abcdef" || !errors.Is(err, io.EOF) {
		t.Errorf("read %q, %v", buf[:got], err)
	}
}

// A link that takes no more goes on where it was once it has been read.
func TestStripedFull(t *testing.T) {
	const cell = 1 << 10
	a, b := stripedPair(t, 2, cell)
	block, sent := numbered(1<<20), []byte{}
	testkit.Eventually(t, "the link is full", func() bool {
		n, err := a.Write(block[:100], block[100:])
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, block[:n]...)
		return n == 0
	})
	drainAll(t, b, sent)
	if n, err := a.Write([]byte("more"), []byte(" of it")); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	drainAll(t, b, []byte("more of it"))
}
