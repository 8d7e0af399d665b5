package engine

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit/thin"
	"ddpbatch/mpi/transport"
)

// scripted is the fabric of rank 0 of two. A script plays the other rank: it says which bytes arrive on which link, and how the links end.
type scripted struct {
	mu    sync.Mutex
	links map[transport.LinkID]*scriptedLink
	edges map[transport.LinkID]bool
	mute  bool // the data link is memory
	woken chan struct{}
}

// scriptedLink accepts all writes, and returns the bytes that the script has let arrive.
type scriptedLink struct {
	fabric *scripted
	news   transport.LinkID
	script []byte // all bytes that will arrive
	come   int    // how many of them have arrived
	read   int    // how many of those have been read
	end    error  // returned when everything has been read, if ended is set
	ended  bool
	broken bool // writing fails
}

func newScripted(mute bool) (f *scripted, control, data *scriptedLink) {
	f = &scripted{links: map[transport.LinkID]*scriptedLink{}, edges: map[transport.LinkID]bool{}, mute: mute,
		woken: make(chan struct{}, 1)}
	for _, news := range []transport.LinkID{{Rank: 1}, {Rank: 1, Data: true}} {
		f.links[news] = &scriptedLink{fabric: f, news: news, end: io.EOF}
	}
	return f, f.links[transport.LinkID{Rank: 1}], f.links[transport.LinkID{Rank: 1, Data: true}]
}

func (l *scriptedLink) Write(head, body []byte) (int, error) {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	if l.broken {
		return 0, syscall.EPIPE
	}
	return len(head) + len(body), nil
}

func (l *scriptedLink) Read(buf []byte) (int, error) {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	n := copy(buf, l.script[l.read:l.come])
	l.read += n
	if n == 0 && len(buf) > 0 && l.ended && l.read == l.come {
		return 0, l.end
	}
	return n, nil
}

// add puts a frame into the script.
func (l *scriptedLink) add(k frameKind, call Call, payload []byte) {
	l.script = append(l.script, frameOf(k, call, string(payload))...)
}

// comes lets n more bytes arrive. If all have arrived, it ends the link, except that memory does not end.
func (l *scriptedLink) comes(n int) {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	memory := l.fabric.mute && l.news.Data
	if left := len(l.script) - l.come; left > 0 {
		l.come += min(n, left)
	} else if !memory {
		l.ended = true
	}
	if !memory {
		l.fabric.edges[l.news] = true
	}
}

func (l *scriptedLink) breaks() {
	l.fabric.mu.Lock()
	l.broken = true
	l.fabric.mu.Unlock()
}

func (f *scripted) Rank() int                        { return 0 }
func (f *scripted) Size() int                        { return 2 }
func (f *scripted) WaitPolicy() transport.WaitPolicy { return transport.WaitPolicy{OnDemand: true} }
func (f *scripted) Control(rank int) transport.Link  { return f.links[transport.LinkID{Rank: rank}] }
func (f *scripted) Data(rank int) transport.Link {
	return f.links[transport.LinkID{Rank: rank, Data: true}]
}

func (f *scripted) Ready(news []transport.LinkID) []transport.LinkID {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one := range f.edges {
		news = append(news, one)
	}
	clear(f.edges)
	return news
}

func (f *scripted) Shared() []int {
	if f.mute {
		return []int{1}
	}
	return nil
}

func (f *scripted) Sleep()  { <-f.woken }
func (f *scripted) Arm()    {}
func (f *scripted) Disarm() {}
func (f *scripted) Wake() {
	select {
	case f.woken <- struct{}{}:
	default:
	}
}
func (f *scripted) WakeRank(int) {}
func (f *scripted) Close() error { return nil }

// onScript starts an engine on the fabric, with a group that ends with its peer, and a group that does not.
func onScript(t testing.TB, f *scripted) (e *Engine, strict, lenient *Group) {
	t.Helper()
	e = New(f, Options{Timeout: time.Hour, Describe: describeCall, DescribeFully: detail})
	t.Cleanup(func() { e.Close() })
	strict, err := e.Group(worldID, all(2))
	if err != nil {
		t.Fatal(err)
	}
	if lenient, err = e.LenientGroup(lenientID, all(2)); err != nil {
		t.Fatal(err)
	}
	return e, strict, lenient
}

func (e *Engine) lookOnce() {
	e.mu.Lock()
	e.look()
	e.mu.Unlock()
}

// A peer sends everything on its two links, and ends in one of the possible ways. The bytes of the two links arrive in any order and in any
// pieces, while this rank posts receives and sends. At the end the peer is known to have ended, every op is done, and everything that was
// sent before a goodbye has arrived intact.
func TestEveryScheduleDeliversWhatWasSent(t *testing.T) { // also without the race detector
	for range 200 / thin.Step(4) {
		seed := rand.Uint64()
		if err := playSchedule(t, rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// schedule is one such sequence of events.
type schedule struct {
	random        *rand.Rand
	engine        *Engine
	groups        [2]*Group // strict, lenient
	control, data *scriptedLink
	mute          bool
	bye, reset    bool
	lengths       []int // of the messages of the lenient group; a message's tag is its index here
	ops           []*Op
	bufs          [][]byte
	others        []*Op
}

func playSchedule(t *testing.T, random *rand.Rand) error {
	s := &schedule{random: random, mute: random.IntN(2) == 0, bye: random.IntN(2) == 0, reset: random.IntN(2) == 0}
	var f *scripted
	f, s.control, s.data = newScripted(s.mute)
	s.write()
	s.engine, s.groups[0], s.groups[1] = onScript(t, f)
	s.engine.mu.Lock()
	s.engine.earlyLimit = 100_000
	s.engine.mu.Unlock()
	for range random.IntN(60) {
		s.step()
	}
	for range 4 { // the rest arrives, and the end
		s.data.comes(len(s.data.script))
		s.deliverControl(len(s.control.script))
		s.engine.lookOnce()
	}
	for i := range s.ops {
		s.post(i)
		for range 20 { // each look takes a bounded part
			s.engine.lookOnce()
		}
	}
	return s.check()
}

// write writes the script.
func (s *schedule) write() {
	for i := range s.random.IntN(6) {
		n := []int{0, 10, 5000, 30_000, 70_000, 3 << 20}[s.random.IntN(6)]
		s.data.add(kindMessage, Call{Group: lenientID, Seq: uint64(i)}, pattern(i, n))
		s.lengths = append(s.lengths, n)
		if s.random.IntN(4) == 0 {
			s.data.add(kindMessage, Call{Group: worldID, Seq: uint64(i)}, pattern(i, 1000))
		}
	}
	s.ops, s.bufs = make([]*Op, len(s.lengths)), make([][]byte, len(s.lengths))
	if s.random.IntN(3) == 0 {
		s.data.add(kindLeave, Call{Group: worldID}, nil)
	}
	if s.random.IntN(4) == 0 {
		s.control.add(kindAbort, Call{Group: worldID}, (&AbortError{By: 1, Rank: 1, Reason: ErrAborted, Text: "x"}).encode())
	}
	switch {
	case s.bye:
		s.data.add(kindBye, Call{}, nil)
		s.control.add(kindBye, Call{}, nil)
	case s.random.IntN(2) == 0 && len(s.data.script) > 0: // the peer is killed in the middle
		s.data.script = s.data.script[:s.random.IntN(len(s.data.script))]
	}
	if s.reset {
		[]*scriptedLink{s.data, s.control}[s.random.IntN(2)].end = syscall.ECONNRESET
	}
}

// step plays one event.
func (s *schedule) step() {
	some := []int{50, 5000, 200_000, 4 << 20}[s.random.IntN(4)]
	switch s.random.IntN(7) {
	case 0, 1:
		s.data.comes(some)
	case 2:
		s.deliverControl(some)
	case 3:
		if len(s.ops) > 0 {
			s.post(s.random.IntN(len(s.ops)))
		}
	case 4, 5:
		s.engine.lookOnce()
	case 6:
		op, g := new(Op), s.groups[s.random.IntN(2)]
		if s.random.IntN(2) == 0 {
			g.SendMessage(op, 1, tag(1), make([]byte, s.random.IntN(50_000)))
		} else {
			g.RecvMessage(op, 1, tag(777), make([]byte, 10))
		}
		s.others = append(s.others, op)
	}
}

// deliverControl holds control frames back until everything in memory has arrived, because they were written after it.
func (s *schedule) deliverControl(n int) {
	if !s.mute || s.data.come == len(s.data.script) {
		s.control.comes(n)
	}
}

func (s *schedule) post(i int) {
	if s.ops[i] == nil {
		s.ops[i], s.bufs[i] = new(Op), make([]byte, s.lengths[i])
		s.groups[1].RecvMessage(s.ops[i], 1, tag(uint64(i)), s.bufs[i])
	}
}

func (s *schedule) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peer(1)
	if p.err == nil {
		fail("the peer is still there: control has ended by %v, data over: %v", p.ending, p.data.readEnded)
	}
	if s.bye && !s.reset && p.err != nil && !errors.Is(p.err, ErrLeft) {
		fail("its goodbye became %v", p.err)
	}
	for i, op := range s.ops {
		switch {
		case !op.Done():
			fail("message %d of %d bytes is not done", i, s.lengths[i])
		case op.err != nil && s.bye && !s.reset:
			fail("message %d of %d bytes: %v", i, s.lengths[i], op.err)
		case op.err == nil && string(s.bufs[i]) != string(pattern(i, s.lengths[i])):
			fail("message %d is another", i)
		}
	}
	for i, op := range s.others {
		if !op.Done() {
			fail("op %d is not done", i)
		}
	}
	for m := p.early; m != nil; m = m.next {
		if !m.complete {
			fail("a message of which the rest will never come is kept")
		}
	}
	return errors.Join(errs...)
}
