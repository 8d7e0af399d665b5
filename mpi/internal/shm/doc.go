// Package shm is shared memory between the rank processes of one machine:
// segments that one process makes and others open, rings of bytes between two
// of them, and collectives that run straight through memory. Linux only.
//
// A [Segment] has no name in any file system: it lives as long as a process has
// it, so that nothing is left behind by one that is killed. A [Ring] is one
// direction of a pair. A [Node] runs the collectives of a group.
//
// Another process may write anything at any time into what it shares. What
// is read from there is therefore read once, checked, and then used; no length or
// place in memory is taken from it unchecked. A hostile peer can spoil results, as it
// can by sending wrong numbers, but not reach other memory.
package shm
