package transport

import (
	"testing"

	"ddpbatch/internal/testkit"
)

// A rank that has received everything may leave at once: its goodbye must not spoil the Sent of the rank
// whose last frame let it go.
func TestPeerLeavesWithTheLastFrame(t *testing.T) {
	for range 20 { // both events are there when Sent looks, and select picks either
		meshes := newMeshes(t, 2, nil)
		sender, receiver := meshes[0], meshes[1]
		p := sender.peers[1]
		payload := make([]byte, MaxPayload)
		frames := 0
		for !p.partial { // until the socket holds no more
			if err := sender.Send(t.Context(), 1, payload); err != nil {
				t.Fatal(err)
			}
			frames++
		}
		for range frames {
			if err := receiver.Recv(t.Context(), 0, make([]byte, MaxPayload)); err != nil {
				t.Fatal(err)
			}
		}
		receiver.Close()
		<-p.gone
		testkit.Eventually(t, "the frame has left its buffer", func() bool { return len(p.sent) == 1 })
		if err := sender.Sent(t.Context(), 1); err != nil {
			t.Fatalf("the frame was received, and Sent says %v", err)
		}
	}
}

// A rank that leaves before it has received everything makes Sent fail, and Sent lets go of the frame.
func TestPeerLeavesBeforeTheFrame(t *testing.T) {
	meshes := newMeshes(t, 2, nil)
	payload := make([]byte, MaxPayload)
	done := fill(t.Context(), t, meshes[0], 1, payload)
	// A goodbye alone: the connection stays open, so that the writer goroutine has something to wait for.
	var head [headerSize]byte
	header{kind: kindBye}.encode(&head)
	if _, err := meshes[1].peers[0].conn.Write(head[:]); err != nil {
		t.Fatal(err)
	}
	var err error
	testkit.Within(t, testkit.Moment, func() { err = <-done })
	wantPeerError(t, err, 1, ErrLeft)
	clear(payload) // the caller's again
}
