package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/tick"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kind is a way to join ranks.
type kind string

const (
	inProcess kind = "in_process" // transport.Network
	overTCP   kind = "tcp"        // transport.Sockets, without shared memory
	overBoth  kind = "shared"     // transport.Sockets: data by shared memory, the rest by TCP
)

// overAll runs a test on every kind of fabric.
func overAll(t *testing.T, f func(t *testing.T, k kind)) {
	overSome(t, f, inProcess, overTCP, overBoth)
}

func overSome(t *testing.T, f func(t *testing.T, k kind), kinds ...kind) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) { f(t, k) })
	}
}

// join makes the fabrics of size ranks. net is nil unless k is inProcess.
func join(t testing.TB, k kind, size int) (fabrics []transport.Fabric, net *transport.Network) {
	t.Helper()
	fabrics = make([]transport.Fabric, size)
	if k == inProcess {
		net = transport.NewNetwork(size)
		for rank := range fabrics {
			f, err := net.Fabric(rank)
			if err != nil {
				t.Fatal(err)
			}
			fabrics[rank] = f
		}
		return fabrics, net
	}
	sharing := transport.ShareNever
	if k == overBoth {
		sharing = transport.ShareAlways
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := store.NewMemory()
	for rank, err := range testkit.Each(size, func(rank int) error {
		f, err := transport.Connect(ctx, transport.Config{
			Rank: rank, Size: size, Listen: "127.0.0.1", Directory: dir, Secret: auth.Secret{1},
			Run: "test", Attempt: 1, Sharing: sharing,
		})
		if err == nil {
			fabrics[rank] = f
		}
		return err
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return fabrics, nil
}

// worldID identifies the group of all ranks that newWorld makes.
const worldID = 1

// world is a set of ranks that live in this process.
type world struct {
	t       testing.TB
	net     *transport.Network // nil over sockets
	engines []*Engine          // nil for a puppet
	groups  []*Group           // the group of all ranks, by rank; nil for a puppet
	puppets []*puppet          // nil for a rank with an engine
	ended   []bool
}

// newWorld joins size ranks. The ranks listed as puppets have no engine. change, if not nil, adjusts the options of each rank.
func newWorld(t testing.TB, k kind, size int, change func(rank int, o *Options), puppets ...int) *world {
	t.Helper()
	fabrics, net := join(t, k, size)
	w := &world{
		t: t, net: net, engines: make([]*Engine, size), groups: make([]*Group, size),
		puppets: make([]*puppet, size), ended: make([]bool, size),
	}
	for _, rank := range puppets {
		w.puppets[rank] = &puppet{t: t, net: net, fabric: fabrics[rank]}
	}
	for rank, fabric := range fabrics {
		if p := w.puppets[rank]; p != nil {
			t.Cleanup(p.die)
			continue
		}
		o := Options{Timeout: testkit.Patience, Describe: describeCall, DescribeFully: detail}
		if change != nil {
			change(rank, &o)
		}
		w.engines[rank] = New(fabric, o)
		w.groups[rank] = w.join(rank, worldID, all(size))
	}
	t.Cleanup(func() {
		testkit.Each(size, func(rank int) error {
			if e := w.engines[rank]; e != nil {
				return e.Close()
			}
			return nil
		})
	})
	return w
}

// join makes a rank a member of another group.
func (w *world) join(rank int, id uint64, members []int) *Group {
	w.t.Helper()
	g, err := w.engines[rank].Group(id, members)
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// little is how many bytes of early messages a rank holds in tests in which there are too many.
const little = 1 << 20

// holdLittle limits the early messages that a rank holds to little bytes.
func (w *world) holdLittle(rank int) {
	e := w.engines[rank]
	e.mu.Lock()
	e.earlyLimit = little
	e.mu.Unlock()
}

// shortenAnswerTimeout gives all ranks a short time-out from here on, so that the preparations of a test may take long on a busy machine.
// No rank waits yet.
func (w *world) shortenAnswerTimeout() {
	for _, e := range w.engines {
		if e == nil {
			continue
		}
		e.mu.Lock()
		e.options.Timeout = shortly
		e.mu.Unlock()
	}
}

// awaitAnswers sets how long all ranks wait for answers about what the others do. On a busy machine answers may come late.
func (w *world) awaitAnswers(limit time.Duration) {
	for _, e := range w.engines {
		if e == nil {
			continue
		}
		e.mu.Lock()
		e.answerTimeout = limit
		e.mu.Unlock()
	}
}

// withAnswers runs play, whose ranks wait for answers for as long as limit because one rank does not answer, and checks that all errors
// contain text about that rank. On a busy machine another rank may not answer in time, either. withAnswers then runs play again with more
// time.
func withAnswers(t testing.TB, text string, play func(limit time.Duration) []error) {
	t.Helper()
	silent := func(err error) bool { return err != nil && strings.Contains(err.Error(), text) }
	for limit := 500 * time.Millisecond; ; limit *= 4 {
		errs := play(limit)
		if !slices.ContainsFunc(errs, func(err error) bool { return !silent(err) }) {
			return
		}
		if 4*limit > testkit.Patience {
			t.Fatalf("got %v, want %q", errs, text)
		}
		t.Logf("within %v: %v", limit, errs)
	}
}

// each runs f as every rank that has an engine, and reports errors.
func (w *world) each(f func(rank int, g *Group) error) {
	w.t.Helper()
	for rank, err := range testkit.Each(len(w.groups), func(rank int) error {
		if w.groups[rank] == nil {
			return nil
		}
		return f(rank, w.groups[rank])
	}) {
		if err != nil {
			w.t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// all returns the ranks of a world.
func all(size int) []int {
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

func describeCall(c Call) string { return fmt.Sprintf("call #%d %c", c.Seq, 'a'+rune(c.Op%26)) }

// shortly is Options.Timeout for tests that wait for it.
const shortly = 100 * time.Millisecond

func impatient(_ int, o *Options) { o.Timeout = shortly }

// begin starts a collective of the group.
func begin(g *Group, call Call) error {
	call.Group = g.ID()
	return g.Begin(&call, tick.Now())
}

func end(g *Group) { g.End(tick.Now()) }

// tag labels a message.
func tag(n uint64) Call { return Call{Seq: n} }

func send(ctx context.Context, g *Group, to int, n uint64, buf []byte) error {
	var op Op
	g.SendMessage(&op, to, tag(n), buf)
	return g.Wait(ctx, &op)
}

func receive(ctx context.Context, g *Group, from int, n uint64, buf []byte) error {
	var op Op
	g.RecvMessage(&op, from, tag(n), buf)
	return g.Wait(ctx, &op)
}

// exchange makes a part of a collective between two ranks.
func exchange(ctx context.Context, g *Group, with int, out, in []byte) error {
	var s, r Op
	g.Send(&s, with, out)
	g.Recv(&r, with, in)
	return errors.Join(g.Wait(ctx, &r), g.Wait(ctx, &s))
}

// withMoreTime runs play, which must not time out though it takes longer than the time-out. If a busy machine delays a part of it for as
// long as the time-out, withMoreTime runs it again with more time.
func withMoreTime(t testing.TB, timeout time.Duration, play func(timeout time.Duration) error) {
	t.Helper()
	for ; ; timeout *= 4 {
		err := play(timeout)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrTimeout) || 4*timeout > testkit.Patience {
			t.Fatal(err)
		}
		t.Logf("within %v: %v", timeout, err)
	}
}

// within fails the test if f hangs.
func within(t testing.TB, f func() error) (err error) {
	t.Helper()
	testkit.Within(t, testkit.Patience, func() { err = f() })
	return err
}

// pattern returns n bytes that differ from those of other seeds.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range min(n, 4099) { // a prime, so that pieces at other places differ
		b[i] = byte(seed*37 + i*(i>>8+1))
	}
	for done := 4099; done < n; {
		done += copy(b[done:], b[:done])
	}
	return b
}

// wantPeer checks that err is what this rank itself found about rank, for the given reason, and that it contains all of texts.
func wantPeer(t testing.TB, err error, rank int, reason error, texts ...string) {
	t.Helper()
	var at *PeerError
	var abort *AbortError
	if errors.As(err, &abort) || !errors.As(err, &at) || at.Rank != rank || !errors.Is(err, reason) {
		t.Errorf("got %v; want rank %d: %v", err, rank, reason)
	}
	wantText(t, err, texts...)
}

// wantAbort checks that err is what rank by has reported about rank about.
func wantAbort(t testing.TB, err error, by, about int, reason error, texts ...string) {
	t.Helper()
	var abort *AbortError
	if !errors.As(err, &abort) || abort.By != by || abort.Rank != about || !errors.Is(err, reason) {
		t.Errorf("got %v; want rank %d to report rank %d: %v", err, by, about, reason)
	}
	wantText(t, err, texts...)
}

func wantText(t testing.TB, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %q, which does not say %q", err, text)
		}
	}
}

// puppet is a rank without an engine. It sends what the test tells it to, and answers nothing, like a stopped process. Only one goroutine
// at a time may use it.
type puppet struct {
	t      testing.TB
	net    *transport.Network
	fabric transport.Fabric
	dead   bool
}

// die ends the rank as if its process had ended.
func (p *puppet) die() {
	if p.dead {
		return
	}
	p.dead = true
	if p.net != nil {
		p.net.Kill(p.fabric.Rank())
	}
	p.fabric.Close()
}

// send writes a frame to another rank, on the link for frames of its kind. The header announces length bytes.
func (p *puppet) send(to int, h header, payload []byte, length uint64) {
	p.t.Helper()
	h.length = length
	var head [headerSize]byte
	h.encode(&head)
	p.write(p.lane(to, h.kind), append(head[:], payload...))
}

// frame sends a whole frame.
func (p *puppet) frame(to int, k frameKind, call Call, payload []byte) {
	p.t.Helper()
	p.send(to, header{kind: k, call: call}, payload, uint64(len(payload)))
}

// bye says goodbye to another rank, as a rank does when it closes its engine.
func (p *puppet) bye(to int) {
	p.t.Helper()
	var head [headerSize]byte
	h := header{kind: kindBye}
	h.encode(&head)
	p.write(p.fabric.Data(to), head[:])
	p.write(p.fabric.Control(to), head[:])
}

func (p *puppet) lane(to int, k frameKind) transport.Link {
	if k.goesByData() {
		return p.fabric.Data(to)
	}
	return p.fabric.Control(to)
}

func (p *puppet) write(l transport.Link, buf []byte) {
	p.t.Helper()
	testkit.Eventually(p.t, "the link takes a frame", func() bool {
		n, err := l.Write(buf, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		buf = buf[n:]
		return len(buf) == 0
	})
}

// receive reads n bytes that another rank has written, on the link for frames of a kind.
func (p *puppet) receive(from int, k frameKind, n int) []byte {
	p.t.Helper()
	l, buf, got := p.lane(from, k), make([]byte, n), 0
	testkit.Eventually(p.t, "a frame comes", func() bool {
		more, err := l.Read(buf[got:])
		if err != nil {
			p.t.Fatal(err)
		}
		got += more
		return got == n
	})
	return buf
}

// receiveFrame reads one frame.
func (p *puppet) receiveFrame(from int, k frameKind) (header, []byte) {
	p.t.Helper()
	h, err := decodeHeader((*[headerSize]byte)(p.receive(from, k, headerSize)))
	if err != nil {
		p.t.Fatal(err)
	}
	return h, p.receive(from, k, int(h.length))
}
