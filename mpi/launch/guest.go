package launch

import "time"

// guest is another agent's connection, as agent 0 sees it. Its fields belong to the roster, under its lock.
type guest struct {
	nonce string // what it calls itself, unlike any other connection
	index int    // its number; 0: it has none
	join  join   // what it said of itself
	local string // the address of agent 0's machine that it reached

	looked time.Time // when agent 0 last looked whether it beats; zero: never
	lostAt time.Time // zero: it is not lost
	why    string    // it is

	gone chan struct{} // closed when it is lost
	left chan struct{} // closed when its connection has ended
}

func newGuest(nonce, local string) *guest {
	return &guest{nonce: nonce, local: local, gone: make(chan struct{}), left: make(chan struct{})}
}

// isGone tells whether it is lost.
func (g *guest) isGone() bool {
	select {
	case <-g.gone:
		return true
	default:
		return false
	}
}
