package ucx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/ucxhost"
)

func TestMain(m *testing.M) {
	ucxhost.SetUp()
	if os.Getenv(mortalVariable) != "" {
		if err := mortalProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// testPatience is how long a test waits for what must happen.
const testPatience = 30 * time.Second

// world makes workers in this process, and returns the links between them: [from][to].
func world(t testing.TB, size int) [][]*Link {
	t.Helper()
	_, _, err := Library()
	ucxhost.Need(t, err)
	workers := make([]*Worker, size)
	for rank := range workers {
		w, err := Open(Config{Rank: rank, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		workers[rank] = w
	}
	links := make([][]*Link, size)
	for from := range links {
		links[from] = make([]*Link, size)
		for to := range links[from] {
			if from == to {
				continue
			}
			l, err := workers[from].Connect(to, workers[to].Address())
			if err != nil {
				t.Fatal(err)
			}
			links[from][to] = l
		}
	}
	t.Cleanup(func() {
		var closed atomic.Int32
		_ = testkit.Each(size, func(rank int) error {
			if !workers[rank].CloseLinks(testPatience) {
				t.Errorf("what rank %d has written is not delivered", rank)
			}
			for closed.Add(1); closed.Load() < int32(size); {
				workers[rank].Progress()
			}
			return nil
		})
		if t.Failed() {
			return
		}
		for _, w := range workers {
			w.Destroy()
		}
	})
	return links
}

// pair returns the two links of a world of two.
func pair(t testing.TB) (a, b *Link) {
	t.Helper()
	links := world(t, 2)
	return links[0][1], links[1][0]
}

// exchange writes all of src to one end, and reads it from the other into dst.
func exchange(t *testing.T, from, to *Link, dst, src []byte) {
	t.Helper()
	written, read := 0, 0
	for deadline := time.Now().Add(testPatience); read < len(dst) || written < len(src); {
		if time.Now().After(deadline) {
			t.Fatalf("of %d bytes %d are written, and %d read", len(src), written, read)
		}
		if rest := src[written:]; len(rest) > 0 {
			head := min(len(rest), 48)
			n, err := from.Write(rest[:head], rest[head:])
			if err != nil {
				t.Fatal(err)
			}
			written += n
		}
		n, err := to.Read(dst[read:])
		if err != nil {
			t.Fatal(err)
		}
		read += n
		from.worker.Ready(nil)
	}
}

// alloc returns memory of a link's worker.
func alloc(t *testing.T, l *Link, n int) []byte {
	t.Helper()
	b, err := l.worker.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBytesArriveAsSent(t *testing.T) {
	a, b := pair(t)
	const most = 8 << 20
	src, dst := alloc(t, a, most), alloc(t, b, most)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	heap, out := bytes.Clone(src), make([]byte, most)
	for name, c := range map[string]struct{ from, to []byte }{"direct": {src, dst}, "copied": {heap, out}, "from direct": {src, out},
		"into direct": {heap, dst}} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 48, 49, pieceBytes[0], pieceBytes[0] + 1, maxCopy, maxCopy + 1, directMin + 47, directMin + 48,
				maxMessage, maxMessage + 1, window, most} {
				clear(c.to[:n])
				exchange(t, a, b, c.to[:n], c.from[:n])
				if !bytes.Equal(c.from[:n], c.to[:n]) {
					t.Errorf("%d bytes arrive as others", n)
				}
				exchange(t, b, a, out[:n], c.from[:n])
			}
		})
	}
	t.Logf("UCX %v from %s, by %s", a.worker.Version(), a.worker.File(), a.Lanes())
	if a.Lanes() == "" {
		t.Error("a link that is connected has no lanes")
	}
}

// A link whose other end does not read takes a limited number of bytes.
func TestUnreadBytesAreBounded(t *testing.T) {
	a, b := pair(t)
	src := make([]byte, 4*window)
	written := 0
	for looks := 0; looks < 100; looks++ {
		n, err := a.Write(nil, src[written:])
		if err != nil {
			t.Fatal(err)
		}
		if written += n; n > 0 {
			looks = 0
		}
		a.worker.Ready(nil)
		b.worker.Ready(nil)
	}
	if written < window || written > window+maxCopy {
		t.Errorf("%d bytes were taken, want %d to %d", written, window, window+maxCopy)
	}
	exchange(t, a, b, make([]byte, len(src)), append(src[:written:written], src[written:]...)[written:])
}

func TestEndOfPeerIsReadBehindWhatItSent(t *testing.T) {
	a, b := pair(t)
	text := []byte("the last words")
	exchange(t, a, b, make([]byte, 4), text[:4])
	if n, err := a.Write(nil, text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	buf := make([]byte, 100)
	got := 0
	for deadline := time.Now().Add(testPatience); got < len(text); {
		n, err := b.Read(buf[got:])
		if err != nil || time.Now().After(deadline) {
			t.Fatal(got, err)
		}
		got += n
	}
	if n, err := b.Read(buf); n != 0 || err != nil {
		t.Errorf("read %d, %v where nothing is", n, err)
	}
	b.PeerGone()
	var err error
	for deadline := time.Now().Add(testPatience); err == nil && time.Now().Before(deadline); {
		_, err = b.Read(buf)
	}
	if err != io.EOF {
		t.Errorf("%v, want EOF", err)
	}
}

// The first message of a pair waits in UCX until the pair is connected. A close right after the write waits for that, too, even if the
// other rank computes and lets UCX make progress only from time to time.
func TestFirstMessageIsDeliveredBeforeTheClose(t *testing.T) {
	_, _, err := Library()
	ucxhost.Need(t, err)
	var workers [2]*Worker
	for rank := range workers {
		if workers[rank], err = Open(Config{Rank: rank, Size: 2}); err != nil {
			t.Fatal(err)
		}
	}
	here, err := workers[0].Connect(1, workers[1].Address())
	there, err2 := workers[1].Connect(0, workers[0].Address())
	must(t, []error{err, err2})
	text := []byte("the only words")
	if n, err := here.Write(text, nil); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	closed := make(chan bool)
	go func() { closed <- workers[0].CloseLinks(testPatience) }()
	for delivered := false; !delivered; {
		select {
		case delivered = <-closed:
			if !delivered {
				t.Fatal("the words are not delivered")
			}
		case <-time.After(100 * time.Millisecond):
			workers[1].Progress()
		}
	}
	buf := make([]byte, 100)
	testkit.Eventually(t, "the words come", func() bool {
		n, err := there.Read(buf)
		return err == nil && string(buf[:n]) == string(text)
	})
	workers[1].CloseLinks(testPatience)
	workers[1].Destroy()
	workers[0].Destroy()
}

// Signals still reach Go. Once loaded, UCX would otherwise handle such a signal itself.
func TestSignalsStayGos(t *testing.T) {
	_, _, err := Library()
	ucxhost.Need(t, err)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGSEGV} {
		received := make(chan os.Signal, 1)
		signal.Notify(received, s)
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		testkit.Within(t, testPatience, func() { <-received })
		signal.Stop(received)
	}
}

func TestEveryRankReachesEveryOther(t *testing.T) {
	const size = 5
	links := world(t, size)
	done := make(chan struct{})
	var tried atomic.Int32
	must(t, testkit.Each(size, func(rank int) error {
		err := links[rank][(rank+1)%size].Try(t.Context())
		if tried.Add(1) == size {
			close(done)
		}
		links[rank][(rank+1)%size].worker.ProgressUntil(done)
		return err
	}))
	for from := range size {
		for to := range size {
			if from != to {
				exchange(t, links[from][to], links[to][from], make([]byte, 100), bytes.Repeat([]byte{byte(from)}, 100))
			}
		}
	}
}

func must(t *testing.T, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkRoundTrip sends a message there and one back, in turns, between two workers in one process.
func BenchmarkRoundTrip(b *testing.B) {
	here, there := pair(b)
	buf := make([]byte, 8)
	pass := func(from, to *Link) {
		if n, err := from.Write(buf, nil); n != len(buf) || err != nil {
			b.Fatal(n, err)
		}
		for n := 0; n == 0; {
			from.worker.Progress()
			var err error
			if n, err = to.Read(buf); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		pass(here, there)
		pass(there, here)
	}
}
