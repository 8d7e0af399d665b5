// Package shm is shared memory between the rank processes of one machine: segments that one process makes and others open, rings of bytes
// between two of them, and collectives that work directly in memory. It is for Linux only.
//
// A [Segment] has no name in any file system. It exists as long as a process has it open, so a process that is killed leaves nothing
// behind. A [Ring] is one direction of a pair. A [Node] runs the collectives of a group.
//
// Another process may write anything at any time to memory that it shares. So values from there are read once, checked, and then used. No
// length or place in memory is used unchecked. A hostile peer can spoil results, as it can by sending wrong numbers, but cannot reach other
// memory.
package shm
