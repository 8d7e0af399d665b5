package transport

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Link is a reliable, ordered stream of bytes to one other rank, and one back. Its methods never wait. A Link is for one goroutine at a
// time.
type Link interface {
	// Write writes as much of head and then body as it can without waiting, and returns the number of bytes. If that is less than all, the
	// caller must call Write again with the rest, beginning with the next byte.
	Write(head, body []byte) (int, error)

	// Read reads into buf what has arrived, and returns the number of bytes, 0 if nothing has arrived yet. io.EOF means that the other end
	// is closed and everything has been read.
	Read(buf []byte) (int, error)
}

// Fabric has one rank's links to all others, and lets the rank sleep until one of them is ready. Any goroutine may call Wake at any time.
// Only one goroutine may call Arm, Disarm and Sleep. The other methods are for one goroutine at a time.
type Fabric interface {
	Rank() int
	Size() int
	WaitPolicy() WaitPolicy

	// Control returns the link to a rank for messages that must not wait behind payloads. Data returns the link for payloads. They are
	// separate sockets, or Data is shared memory. When a rank ends, both links end, but shared memory does not show that.
	Control(rank int) Link
	Data(rank int) Link

	// Ready appends the links that have become readable, or writable after they were not, since the last call. They may also be neither.
	Ready(links []LinkID) []LinkID

	// Shared returns the ranks whose data link is shared memory. Whether those links are ready shows only when they are read, unless the
	// fabric is armed.
	Shared() []int

	// Sleep returns when Ready may append a link, or after Wake. Between Arm and Disarm, it also returns when a Shared link is ready.
	Sleep()
	Arm()
	Disarm()
	Wake()

	// WakeRank makes the Sleep of another rank return if it is armed. It is for memory that the two ranks share outside of their links.
	WakeRank(rank int)

	// Close closes all links.
	Close() error
}

// LinkID identifies a link.
type LinkID struct {
	Rank int
	Data bool // it is the data link; otherwise the control link
}

// WaitPolicy says how ranks should wait on a fabric.
type WaitPolicy struct {
	Spin     time.Duration // how long to poll before sleeping
	Yield    bool          // ranks share cores: yield the core between polls
	OnDemand bool          // links are made when they are first used
	LateData bool          // data links connect with their first bytes, which takes a while: bye frames alone should not make them connect
}

// ErrClosedThere is the io.EOF of a Network's link whose other end was closed by its rank. If the rank was killed, the error is io.EOF
// itself.
var ErrClosedThere = fmt.Errorf("the other rank has closed its links: %w", io.EOF)

// ErrProtocol means that a rank has sent something that a rank of this version never sends.
var ErrProtocol = errors.New("protocol violation")
