// Package engine turns the links of one rank into messages between the ranks of
// its groups.
//
// Whoever waits drives the links: it polls the one that it waits for, for a short while, then sleeps; the
// attendant, a goroutine, drives them all while everybody sleeps. So a message that is waited for costs no
// switch of goroutines, and a waiting rank soon leaves the core to others.
//
// # The wire
//
// Each direction of a link carries frames: a header of 48 bytes, then the payload, elements as they lie in
// memory. Integers are little-endian.
//
//	offset  bytes
//	0       2      "dM"
//	2       1      version, 2
//	3       1      kind: 1 collective, 2 message, 3 abort, 4 leave, 5 bye, 6 query, 7 status
//	4       1      collective  \
//	5       1      element      |
//	6       1      operation    |
//	7       1      algorithm    |  the Call: of a collective, the same on every rank
//	8       8      group        |
//	16      8      sequence     |  of a message: its tag
//	24      8      count        |
//	32      4      root        /
//	36      4      zero
//	40      8      payload length
//
// Frames of the first two kinds go by the data link of a pair, and leave follows them, so that it comes after what was sent before. Abort,
// query and status go by the control link, where nothing that nobody receives can hold them up: so an abort
// may also fail a call for which the sender's part is on its way. A bye is the last frame on both. An abort carries why its sender failed
// in a group, a leave that its sender has closed one, a bye that it closes its engine. A query asks what the receiver last did in a group,
// and a status tells. Every header is checked before a byte of payload is read.
//
// # Guarantees
//
// Frames of one pair arrive in the order they were sent. A collective's frames of another Call than the receiver's
// own are an error on both sides that shows both calls. The death of a peer's process is an error at once in all groups
// that it is of; that of its host as soon as the link notices, or at the time-out. After its first failure a group is broken on
// all its ranks, and the engine holds on to none of the callers' memory for it. Other groups go on. In steady state nothing is
// allocated for a message.
package engine
