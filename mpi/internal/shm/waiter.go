package shm

// Waiter is how a rank waits for the others of its group, and wakes those that sleep.
type Waiter interface {
	// Entered is Notify when the other ranks can see that this one is in the call, and before it waits for them: once in each
	// call, and with time for what need not keep them waiting.
	Entered()

	// Await returns nil when ready has returned true, or an error when there is no more point in waiting
	// as the group has failed or the call was cancelled. It calls ready as often as it
	// likes, on the goroutine of the caller.
	Await(ready func() bool) error

	// Notify is called after each change that another rank may wait for.
	Notify()
}

// Stamp is what tells a call from others: opaque here, the same for all ranks that are in the same call.
type Stamp [4]uint64
