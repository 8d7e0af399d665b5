// Package engine turns the links of one rank into messages between the ranks of its groups.
//
// A goroutine that waits drives the links itself. It polls the link that it waits for, for a short while, and then sleeps. While all of
// them sleep, the attendant, another goroutine, drives all links. So receiving a message that a goroutine polls for does not need a switch
// of goroutines, and a waiting rank soon leaves the core to others.
//
// # The wire
//
// Each direction of a link carries frames: a header of 48 bytes, and then the payload, with elements as they lie in memory. Integers are
// little-endian.
//
//	offset  bytes
//	0       2      "dM"
//	2       1      version, 2
//	3       1      kind: 1 collective, 2 message, 3 abort, 4 leave, 5 bye, 6 query, 7 status
//	4       1      collective  \
//	5       1      element      |
//	6       1      operation    |
//	7       1      algorithm    |  the Call: for a collective, the same on every rank
//	8       8      group        |
//	16      8      sequence     |  for a message: its tag
//	24      8      count        |
//	32      4      root        /
//	36      4      zero
//	40      8      payload length
//
// Frames of the first two kinds use the data link of a pair. Leave frames follow them, so that they arrive after what was sent before.
// Abort, query and status frames use the control link, where a frame that nobody receives cannot block them. So an abort may also fail a
// call for which the sender's part is under way. A bye is the last frame on both links.
//
// An abort frame carries the sender's failure in a group. A leave says that its sender has closed a group, and a bye that it closes its
// engine. A query asks what the receiver did last in a group, and a status answers it. Every header is checked before a byte of its payload
// is read.
//
// # Guarantees
//
// Frames of one pair arrive in the order in which they were sent. If a frame of a collective has another Call than the receiver's own, both
// sides get an error that shows both calls. The death of a peer's process is an error at once in all groups that it belongs to. The death
// of its host is an error as soon as the link notices it, or after the time-out. After its first failure a group is broken on all its
// ranks, and the engine does not use any of the callers' memory for it any more. Other groups go on. In steady state, messages do not
// allocate.
package engine
