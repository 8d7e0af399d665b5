package algorithm

import "testing"

// idlePort is a rank's port in a group where all is done at once, and nothing moves.
type idlePort struct {
	rank, size int
	scratch    []byte
	tickets    []Ticket
}

func (p *idlePort) Rank() int               { return p.rank }
func (p *idlePort) Size() int               { return p.size }
func (p *idlePort) Send(int, []byte) Ticket { return 0 }
func (p *idlePort) Recv(int, []byte) Ticket { return 0 }
func (p *idlePort) Wait(Ticket) error       { return nil }
func (p *idlePort) Scratch(n int) []byte    { return p.scratch[:n] }
func (p *idlePort) Tickets(n int) []Ticket  { return p.tickets[:n:n] }

func TestMovesDoNotAllocate(t *testing.T) { // without the race detector
	const size, block = 8, 4096
	buf, other, at := make([]byte, size*block), make([]byte, size*block), evenJob(size, block, 0).at()
	measure := func(name string, run func(p Port) error) {
		t.Helper()
		for rank := range size {
			p := &idlePort{rank, size, make([]byte, 4*len(buf)), make([]Ticket, 1000)}
			var err error
			// What the runtime allocates meanwhile is less than once a run, which AllocsPerRun rounds down, where the runs are many.
			if n := testing.AllocsPerRun(100, func() { err = run(p) }); n != 0 || err != nil {
				t.Errorf("%s, rank %d: %v allocations a call, error %v", name, rank, n, err)
			}
		}
	}
	for _, e := range Broadcasts() {
		measure("broadcast "+e.Name, func(p Port) error { return e.Run(p, buf, 3) })
	}
	for _, e := range AllGathers() {
		measure("all-gather "+e.Name, func(p Port) error { return e.Run(p, buf, at) })
	}
	for _, e := range Gathers() {
		measure("gather "+e.Name, func(p Port) error { return e.Run(p, buf, at, other[:block], 3) })
	}
	for _, e := range Scatters() {
		measure("scatter "+e.Name, func(p Port) error { return e.Run(p, other[:block], buf, at, 3) })
	}
	for _, e := range AllToAlls() {
		measure("all-to-all "+e.Name, func(p Port) error { return e.Run(p, other, at, buf, at) })
	}
	for _, e := range Barriers() {
		measure("barrier "+e.Name, e.Run)
	}
}
