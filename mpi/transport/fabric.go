package transport

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Link is a reliable, ordered stream of bytes to one other rank, and one back.
// Its methods never wait. One goroutine at a time may use it.
type Link interface {
	// Write takes what it can of head and then body at once, and returns how many bytes that was. A caller of which less was taken comes
	// again with the rest, which begins with the same byte.
	Write(head, body []byte) (int, error)

	// Read fills buf with what is there, and returns 0 where that is nothing yet. io.EOF says
	// that the other end is closed and all has been read.
	Read(buf []byte) (int, error)
}

// Fabric is one rank's links to all others, and how it sleeps until one of them is ready. Wake may be called by
// any goroutine at any time, Arm, Disarm and Sleep by one, the other methods by one at a time.
type Fabric interface {
	Rank() int
	Size() int
	WaitPolicy() WaitPolicy

	// Control is the link to a rank for what must not wait behind payloads. Data is the one for those: sockets of
	// their own, or shared memory. A rank that ends, ends both, but memory does not show that.
	Control(rank int) Link
	Data(rank int) Link

	// Ready appends the links that may have something to read, or room to write after they had none, since the
	// last call.
	Ready(links []LinkID) []LinkID

	// Shared is the ranks whose data link is shared memory: only a look at them shows whether they
	// are ready, unless the fabric is armed.
	Shared() []int

	// Sleep returns when Ready may have something to say, or after Wake, or, between Arm and Disarm, when a
	// Shared link is ready.
	Sleep()
	Arm()
	Disarm()
	Wake()

	// WakeRank makes the Sleep of another rank return, if it is armed: this one has changed what the
	// two share.
	WakeRank(rank int)

	// Close closes all links.
	Close() error
}

// LinkID names a link.
type LinkID struct {
	Rank int
	Data bool // it is the data link; else the control link
}

// WaitPolicy is how ranks are to wait on a fabric.
type WaitPolicy struct {
	Spin     time.Duration // how long to poll before sleeping
	Yield    bool          // ranks share cores: give them away between polls
	OnDemand bool          // links come to be when they are first used
	LateData bool          // data links connect with their first bytes, which takes a while: goodbyes are no reason to
}

// ErrClosedThere is the io.EOF of a Network's link whose other end was closed by its rank, which was not killed.
var ErrClosedThere = fmt.Errorf("the other rank has closed its links: %w", io.EOF)

// ErrProtocol: a rank sent what no rank of this version sends.
var ErrProtocol = errors.New("protocol violation")
