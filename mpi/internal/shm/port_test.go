package shm

import (
	"bytes"
	"fmt"

	"ddpbatch/mpi/internal/algorithm"
)

// testPort sends and receives the messages of a rank, for one call after another. Without lanes it cannot.
type testPort struct {
	algorithm.Port // the methods that a Node does not use
	w              *testWaiter
	rank           int
	lanes          [][]chan []byte // by sender and receiver
	received       []message       // posted in this call
	handles        []algorithm.Handle
}

// message says where the next message of a rank goes.
type message struct {
	from int
	buf  []byte
}

// isSent is the handle of a message that has been sent.
const isSent algorithm.Handle = -1

// laneLength exceeds the number of messages that one rank sends another in a call.
const laneLength = 4

// connectPorts makes the ports of ranks that are goroutines of this process.
func connectPorts(members []*member) {
	lanes := make([][]chan []byte, len(members))
	for from := range lanes {
		for range members {
			lanes[from] = append(lanes[from], make(chan []byte, 2*laneLength)) // the sender may be ahead by a call
		}
	}
	for _, m := range members {
		m.p = &testPort{w: m.w, rank: m.rank, lanes: lanes}
	}
}

// Handles begins a call.
func (p *testPort) Handles(n int) []algorithm.Handle {
	p.received = p.received[:0]
	if len(p.handles) < n {
		p.handles = make([]algorithm.Handle, n)
	}
	return p.handles[:n]
}

func (p *testPort) Send(to int, buf []byte) algorithm.Handle {
	p.lanes[p.rank][to] <- bytes.Clone(buf)
	return isSent
}

func (p *testPort) Recv(from int, buf []byte) algorithm.Handle {
	p.received = append(p.received, message{from, buf})
	return algorithm.Handle(len(p.received) - 1)
}

func (p *testPort) Wait(h algorithm.Handle) error {
	if h == isSent {
		return nil
	}
	m := p.received[h]
	var got []byte
	err := p.w.Await(func() bool {
		select {
		case got = <-p.lanes[m.from][p.rank]:
			return true
		default:
			return false
		}
	})
	if err == nil && len(got) != len(m.buf) {
		err = fmt.Errorf("a message of %d bytes from rank %d, where %d were expected", len(got), m.from, len(m.buf))
	}
	copy(m.buf, got)
	return err
}
