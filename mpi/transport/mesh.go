package transport

import "context"

// Mesh joins the ranks of a group: frames go from any rank to any other.
//
// A new mesh is in the zero Call, on every rank. Begin, Send, Sent and Recv are
// for one goroutine at a time. A mesh does not outlive its first failure: from
// then on every method returns that failure, and the other ranks are told of
// it. Methods that block end at once with ctx and when a rank dies or fails,
// and when the rank waited for makes no progress for the mesh's time-out; when
// they return, the mesh holds on to none of the caller's memory but what Send
// was given and Sent has not yet returned.
type Mesh interface {
	Rank() int
	Size() int

	// Begin starts a call. Frames sent from here on carry it, and frames
	// received must carry the same. Its sequence number must be larger than
	// the previous call's.
	Begin(call Call) error

	// Send starts sending one frame, of at most MaxPayload bytes, to rank to. It waits
	// for the previous frame to that rank, but never for the receiver of this one. The mesh reads
	// payload until Sent returns nil for that rank.
	Send(ctx context.Context, to int, payload []byte) error

	// Sent waits until the frame that Send was given for rank to has left its buffer.
	Sent(ctx context.Context, to int) error

	// Recv receives the next frame of rank from into buf, whose length its
	// payload must have.
	Recv(ctx context.Context, from int, buf []byte) error

	// Abort breaks the mesh with err and tells the other ranks why. It may be
	// called by any goroutine.
	Abort(err error)

	// Close leaves the group and waits until the mesh's goroutines have ended.
	// It is not a failure for the other ranks, unless they still wait for this one.
	Close() error
}

// Call is what all ranks must agree on: the fingerprint of one collective call.
// The meaning of Collective, Element and Op is the caller's; the mesh compares them.
type Call struct {
	Seq        uint64 // 1 for the first call of a mesh
	Count      uint64 // elements
	Root       int32
	Collective uint8
	Element    uint8
	Op         uint8
}
