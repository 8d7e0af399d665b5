package algorithm

// Port is how one rank's part in one collective call talks to the other ranks
// of its group. A port is for one goroutine.
//
// Sends and receives are posted, and done when Wait says so; every one must be
// waited for before the algorithm returns without an error. After an error, which
// every later Wait returns too, the algorithm returns it at once: whoever made the port
// takes the caller's buffers back.
//
// Messages from one rank to another arrive in the order in which they were posted, and a
// receive gets the next one of that rank, in the order in which receives from it were posted; its
// buffer must have the message's length. Posting a send never waits for the
// receiver, whatever the length. Messages to oneself are not allowed. Empty ones are.
type Port interface {
	Rank() int // this rank's number in the group, from 0
	Size() int

	// Send posts a message. buf may not be changed until Wait has returned for
	// its handle.
	Send(to int, buf []byte) Handle

	// Recv posts a receive into buf, whose content is not defined until Wait has
	// returned for its handle.
	Recv(from int, buf []byte) Handle

	// Wait returns when what the handle stands for is done. It may be called more than once.
	Wait(h Handle) error

	// Notify sends an empty message, and Expect receives one: that a rank has come. The algorithm does not wait for it; whoever made the
	// port does, before the next call of the group returns.
	Notify(to int)
	Expect(from int)

	// Scratch returns n bytes, aligned for every element type, that are the call's until it
	// ends. Their content is undefined. It allocates only where earlier calls have not needed as much.
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
