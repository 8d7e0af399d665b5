package engine

import (
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"ddpbatch/mpi/transport"
)

// scripted is the fabric of rank 0 of two, the other one of which is a script: what has come, link by link, and how it ends.
type scripted struct {
	mu    sync.Mutex
	links map[transport.News]*scriptedLink
	edges map[transport.News]bool
	mute  bool // the data link is memory
	woken chan struct{}
}

// scriptedLink takes what is written, and gives what the script lets come.
type scriptedLink struct {
	fabric *scripted
	news   transport.News
	script []byte // all that will come
	come   int    // of it
	read   int    // of that
	end    error  // told after all that has come, once ended
	ended  bool
	broken bool // writing fails
}

func newScripted(mute bool) (f *scripted, control, data *scriptedLink) {
	f = &scripted{links: map[transport.News]*scriptedLink{}, edges: map[transport.News]bool{}, mute: mute, woken: make(chan struct{}, 1)}
	for _, news := range []transport.News{{Rank: 1}, {Rank: 1, Data: true}} {
		f.links[news] = &scriptedLink{fabric: f, news: news, end: io.EOF}
	}
	return f, f.links[transport.News{Rank: 1}], f.links[transport.News{Rank: 1, Data: true}]
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

// comes lets n more bytes come, or, where all have, the end. Memory has none.
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

func (f *scripted) Rank() int                       { return 0 }
func (f *scripted) Size() int                       { return 2 }
func (f *scripted) Manner() transport.Manner        { return transport.Manner{OnDemand: true} }
func (f *scripted) Control(rank int) transport.Link { return f.links[transport.News{Rank: rank}] }
func (f *scripted) Data(rank int) transport.Link {
	return f.links[transport.News{Rank: rank, Data: true}]
}

func (f *scripted) Ready(news []transport.News) []transport.News {
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
func (f *scripted) Nudge(int)    {}
func (f *scripted) Close() error { return nil }

// onScript starts an engine on the fabric, with a group that ends with its peer, and one that does not.
func onScript(t testing.TB, f *scripted) (e *Engine, strict, lenient *Group) {
	t.Helper()
	e = New(f, Options{Timeout: time.Hour, Describe: describeCall})
	t.Cleanup(func() { e.Close() })
	strict, err := e.Group(worldID, all(2))
	if err != nil {
		t.Fatal(err)
	}
	if lenient, err = e.Remains(remainsID, all(2)); err != nil {
		t.Fatal(err)
	}
	return e, strict, lenient
}

func (e *Engine) lookOnce() {
	e.mu.Lock()
	e.look()
	e.mu.Unlock()
}
