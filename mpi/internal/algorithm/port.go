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
	// its ticket.
	Send(to int, buf []byte) Ticket

	// Recv posts a receive into buf, whose content is not defined until Wait has
	// returned for its ticket.
	Recv(from int, buf []byte) Ticket

	// Wait returns when what the ticket stands for is done. It may be called more than once.
	Wait(t Ticket) error

	// Scratch returns n bytes, aligned for every element type, that are the call's until it
	// ends. Their content is undefined. It allocates only where earlier calls have not needed as much.
	Scratch(n int) []byte

	// Tickets returns room for n tickets, on the same terms.
	Tickets(n int) []Ticket
}

// Ticket is a posted send or receive of one Port.
type Ticket int32

// WaitAll waits for several tickets.
func WaitAll(p Port, tickets ...Ticket) error {
	for _, t := range tickets {
		if err := p.Wait(t); err != nil {
			return err
		}
	}
	return nil
}
