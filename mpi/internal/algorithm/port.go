package algorithm

// Port lets one rank's part of a collective call communicate with the other ranks of the group. A port is for one goroutine.
//
// Sends and receives are posted, and are done when Wait returns. The algorithm must wait for each of them before it returns without an
// error. When a Wait returns an error, all later ones do, too, and the algorithm returns the error at once. The maker of the port then
// takes the caller's buffers back.
//
// Messages from one rank to another arrive in the order in which they were posted. A receive gets the next message of its rank, in the
// order in which receives from that rank were posted; its buffer must have the message's length. Posting a send never waits for the
// receiver, whatever the length. A rank may not send messages to itself. Empty messages are allowed.
type Port interface {
	Rank() int // this rank's number in the group, from 0
	Size() int

	// Send posts a message. buf must not change until Wait has returned for its handle.
	Send(to int, buf []byte) Handle

	// Recv posts a receive into buf. The content of buf is undefined until Wait has returned for its handle.
	Recv(from int, buf []byte) Handle

	// Wait returns when the operation of the handle is done. It may be called more than once for a handle.
	Wait(h Handle) error

	// Notify sends an empty message, and Expect receives one. The message says that the rank has made the call. The algorithm does not wait
	// for it; the maker of the port does, before the next call of the group returns.
	Notify(to int)
	Expect(from int)

	// Scratch returns n bytes, aligned for every element type, which the call may use until it ends. Their content is undefined. Scratch
	// allocates only if earlier calls have needed less.
	Scratch(n int) []byte

	// Handles returns room for n handles, on the same terms.
	Handles(n int) []Handle
}

// Handle is a posted send or receive of one Port.
type Handle int32

// WaitAll waits for several handles.
func WaitAll(p Port, handles ...Handle) error {
	for _, h := range handles {
		if err := p.Wait(h); err != nil {
			return err
		}
	}
	return nil
}
