package transport

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

func newNetwork(t testing.TB, size int) (*Network, []Fabric) {
	t.Helper()
	n := NewNetwork(size)
	fabrics := make([]Fabric, size)
	for rank := range fabrics {
		f, err := n.Fabric(rank)
		if err != nil {
			t.Fatal(err)
		}
		fabrics[rank] = f
	}
	return n, fabrics
}

func TestNetworkRefusesOtherRanks(t *testing.T) {
	n, fabrics := newNetwork(t, 2)
	if n.Size() != 2 || fabrics[1].Rank() != 1 || fabrics[1].Size() != 2 {
		t.Errorf("rank %d of %d, of %d", fabrics[1].Rank(), fabrics[1].Size(), n.Size())
	}
	for _, rank := range []int{-1, 2, 0} { // rank 0 exists already
		if _, err := n.Fabric(rank); err == nil {
			t.Errorf("there is a place for rank %d", rank)
		}
	}
}

func write(t testing.TB, l Link, text string) {
	t.Helper()
	if n, err := l.Write([]byte(text), nil); n != len(text) || err != nil {
		t.Fatalf("wrote %d bytes of %d, %v", n, len(text), err)
	}
}

func TestNetworkDelaysWhatIsWritten(t *testing.T) {
	for _, name := range []string{"control", "data"} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testDelay(t, name) }) })
	}
}

func testDelay(t *testing.T, name string) {
	n, fabrics := newNetwork(t, 2)
	const delay = 30 * time.Millisecond
	l, other := links(fabrics[0], 1)[name], links(fabrics[1], 0)[name]
	write(t, l, "at once ")
	n.Delay(delay)
	start := time.Now()
	write(t, l, "late ")
	n.Delay(0)
	write(t, l, "after it") // the order is kept
	if got := readN(t, other, 8); string(got) != "at once " {
		t.Errorf("read %q", got)
	}
	if n, err := other.Read(make([]byte, 10)); n > 0 && time.Since(start) < delay || err != nil {
		t.Errorf("%d bytes came before their time, %v", n, err)
	}
	fabrics[1].Ready(nil)
	expectWoken(t, startSleep(fabrics[1]))
	if got := readN(t, other, 13); string(got) != "late after it" || time.Since(start) < delay {
		t.Errorf("read %q after %v", got, time.Since(start))
	}
	n.Delay(delay)
	write(t, l, "last words")
	fabrics[0].Close() // the end arrives after them
	if got := readN(t, other, 10); string(got) != "last words" {
		t.Errorf("read %q", got)
	}
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("then %v", err)
	}
}

// Drop and Cut lose data on both links of a pair, which are otherwise independent.
func TestNetworkLosesOnBothLinks(t *testing.T) {
	n, fabrics := newNetwork(t, 3)
	say := func(from, to int, text string) {
		write(t, fabrics[from].Control(to), "control "+text)
		write(t, fabrics[from].Data(to), "data "+text)
	}
	n.Drop(func(from, to int) bool { return from == 0 && to == 1 })
	say(0, 1, "lost")
	say(1, 0, "x")
	say(0, 2, "x")
	n.Drop(nil)
	n.Cut(0, 2)
	say(0, 1, "y")
	say(0, 2, "lost")
	say(2, 0, "lost")
	for _, tt := range []struct {
		from, to int
		text     string
	}{{1, 0, "x"}, {0, 2, "x"}, {0, 1, "y"}} {
		for name, l := range links(fabrics[tt.to], tt.from) {
			buf := make([]byte, 100)
			if n, err := l.Read(buf); string(buf[:n]) != name+" "+tt.text || err != nil {
				t.Errorf("%s, from %d to %d: came %q, %v", name, tt.from, tt.to, buf[:n], err)
			}
			if n, err := l.Read(buf); n != 0 || err != nil {
				t.Errorf("%s, from %d to %d: came %q more, %v", name, tt.from, tt.to, buf[:n], err)
			}
		}
	}
	for name, l := range links(fabrics[0], 2) {
		if n, err := l.Read(make([]byte, 1)); n != 0 || err != nil {
			t.Errorf("%s: through a cut came %d bytes, %v", name, n, err)
		}
	}
}

// All ranks learn that a rank was killed. If a rank has closed, the ranks that it has talked to on any link learn of it, and so does a rank
// that reads from a link to it. A rank that has ended cannot use its links any more.
func TestNetworkReportsKilledAndClosedRanks(t *testing.T) {
	n, fabrics := newNetwork(t, 3)
	write(t, fabrics[0].Control(1), "x")
	fabrics[0].Close()
	readN(t, fabrics[1].Control(0), 1)
	for name, l := range links(fabrics[1], 0) {
		if _, err := l.Read(make([]byte, 1)); !errors.Is(err, ErrClosedThere) || !errors.Is(err, io.EOF) {
			t.Errorf("%s: whom it had talked to got %v", name, err)
		}
	}
	for name, l := range links(fabrics[2], 0) {
		if _, err := l.Read(make([]byte, 1)); !errors.Is(err, ErrClosedThere) {
			t.Errorf("%s: whom it had not talked to got %v", name, err)
		}
	}
	clearReady(t, fabrics[2])
	n.Kill(1)
	if links := fabrics[2].Ready(nil); !slices.Equal(links, []LinkID{{Rank: 1}, {Rank: 1, Data: true}}) {
		t.Errorf("a stranger to a killed rank has events of %v", links)
	}
	for name, l := range links(fabrics[2], 1) {
		if _, err := l.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || errors.Is(err, ErrClosedThere) {
			t.Errorf("%s: a stranger to a killed rank got %v", name, err)
		}
		if _, err := l.Write([]byte("x"), nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: writing to it got %v", name, err)
		}
	}
	if links := fabrics[1].Ready(nil); !slices.Contains(links, LinkID{Rank: 2}) || !slices.Contains(links, LinkID{Rank: 2, Data: true}) {
		t.Errorf("what goes on of the killed rank has events of %v", links)
	}
	for _, rank := range []int{0, 1} {
		for name, l := range links(fabrics[rank], 2) {
			if _, err := l.Write([]byte("x"), nil); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: rank %d, which has ended, writes: %v", name, rank, err)
			}
			if _, err := l.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: rank %d, which has ended, reads: %v", name, rank, err)
			}
		}
	}
}

// The buffer of a link does not grow if its reader is always a little behind.
func TestNetworkDoesNotGrow(t *testing.T) {
	_, fabrics := newNetwork(t, 2)
	l, other := fabrics[0].Control(1), fabrics[1].Control(0)
	const frame = 1000
	write(t, l, "behind")
	for range 10_000 {
		l.Write(make([]byte, frame), nil)
		readN(t, other, frame)
	}
	b := fabrics[1].(*networkRank).inbox(LinkID{Rank: 0})
	if c := cap(b.buf); c > 100*frame {
		t.Errorf("%d bytes for %d", c, len(b.buf)-b.r)
	}
	testkit.Within(t, testkit.Patience, func() { fabrics[0].Close() })
}
