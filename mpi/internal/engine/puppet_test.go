package engine

import (
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// puppet is a rank without an engine: it says what the test tells it to, and answers nothing, like a process that is
// stopped. One goroutine at a time uses it.
type puppet struct {
	t      testing.TB
	net    *transport.Network
	fabric transport.Fabric
	dead   bool
}

// die ends the rank as the end of its process would.
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

// say writes a frame to another rank, on the link where frames of its kind belong. length is what the header announces.
func (p *puppet) say(to int, h header, payload []byte, length uint64) {
	p.t.Helper()
	h.length = length
	var head [headerSize]byte
	h.encode(&head)
	p.write(p.lane(to, h.kind), append(head[:], payload...))
}

// frame is say for a whole frame.
func (p *puppet) frame(to int, k frameKind, call Call, payload []byte) {
	p.t.Helper()
	p.say(to, header{kind: k, call: call}, payload, uint64(len(payload)))
}

// bye says goodbye to another rank, as a rank does that closes its engine.
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

// hear reads n bytes that another rank has written, on the link for frames of a kind.
func (p *puppet) hear(from int, k frameKind, n int) []byte {
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

// hearFrame reads one frame.
func (p *puppet) hearFrame(from int, k frameKind) (header, []byte) {
	p.t.Helper()
	h, err := decodeHeader((*[headerSize]byte)(p.hear(from, k, headerSize)))
	if err != nil {
		p.t.Fatal(err)
	}
	return h, p.hear(from, k, int(h.length))
}
