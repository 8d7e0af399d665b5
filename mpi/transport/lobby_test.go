package transport

import (
	"net"
	"testing"
)

func TestLobbyClosesTheOldest(t *testing.T) {
	l := lobby{room: 2}
	var ours, theirs [3]net.Conn
	for i := range ours {
		ours[i], theirs[i] = net.Pipe()
		defer ours[i].Close()
		defer theirs[i].Close()
		l.enter(ours[i])
	}
	if _, err := theirs[0].Write([]byte("x")); err == nil {
		t.Error("the oldest connection is open")
	}
	for i, want := range []bool{false, true, true} {
		if got := l.leave(ours[i]); got != want {
			t.Errorf("connection %d still there: %v, want %v", i, got, want)
		}
	}
	if l.leave(ours[1]) {
		t.Error("a connection left twice")
	}
}
