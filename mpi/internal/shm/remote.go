package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// ownMemory stands for the region in a reference to a rank's own memory. The rest of such a reference is an address.
	ownMemory = maxRegions + 1

	// readFrom is the length in bytes from which Broadcast, AllGather, AllToAll and calls with blocks of different lengths read a buffer or
	// a block in its rank's own memory. For a shorter one, the kernel's work for each page costs more than a second copy. A GatherV of more
	// than two ranks sends messages, because the ranks send at the same time, while root would read alone.
	readFrom = 32 << 10
	never    = math.MaxInt

	// fetchPiece is the number of bytes that are read at a time. After each piece a rank checks whether the buffer's rank has failed, and
	// waits until the others have read theirs. In calls with blocks of different lengths it does not wait.
	fetchPiece = 4 << 20
)

// ReadsOwner reports whether this process can read the memory of the process that made s. The kernel allows that to processes that may
// attach to it (ptrace(2), PTRACE_MODE_ATTACH_REALCREDS), which are normally those of the same user. It does not under Yama's ptrace_scope,
// or if a container forbids the call. If the segment was made in another PID namespace, its PID may belong to another process here. So
// ReadsOwner compares the token.
func (s *Segment) ReadsOwner() bool {
	var token [tokenSize]byte
	err := readMemory(s.handle.PID, binary.LittleEndian.Uint64(s.mem[tokenSize:]), token[:])
	return err == nil && token == s.handle.Token
}

// noteAddress stores in the segment at which address the process that made it has mapped it, for ReadsOwner.
func (s *Segment) noteAddress() {
	binary.LittleEndian.PutUint64(s.mem[tokenSize:], addressOf(s.mem))
}

func addressOf(buf []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))) }

// fetchBlocks copies from the buffer of each other rank, from offset on, at most longest bytes. It returns when all ranks have done so:
// after that, each rank may change its buffer.
func (n *Node) fetchBlocks(w Waiter, longest int, of func(r int) (to []byte, offset int)) error {
	base, rounds := n.counts[finished], max(1, roundsOf(longest, fetchPiece))
	for round := range rounds {
		if err := n.await(w, finished, base+uint64(round)); err != nil {
			return err
		}
		for i := 1; i < len(n.ranks); i++ { // each rank begins with another one
			r := (n.rank + i) % len(n.ranks)
			to, offset := of(r)
			if err := n.fetch(w, window(to, round, fetchPiece), r, offset+round*fetchPiece); err != nil {
				return n.fail(err)
			}
		}
		n.count(w, finished)
	}
	return n.await(w, finished, n.counts[finished])
}

// fetchAll fills dst from the start of rank r's buffer, piece by piece.
func (n *Node) fetchAll(w Waiter, dst []byte, r int) error {
	for round := range roundsOf(len(dst), fetchPiece) {
		if err := n.fetch(w, window(dst, round, fetchPiece), r, round*fetchPiece); err != nil {
			return err
		}
	}
	return nil
}

// fetch fills dst from rank r's buffer, from offset on. resolve or takeBlock has stored where the buffer is.
func (n *Node) fetch(w Waiter, dst []byte, r, offset int) error {
	state := &n.ranks[r]
	var err error
	if state.view != nil {
		copy(dst, state.view[min(offset, len(state.view)):])
	} else {
		err = readMemory(state.pid, state.address+uint64(offset), dst)
	}
	switch {
	case state.hasGivenUp() || errors.Is(err, unix.ESRCH):
		return awaitFailure(w)
	case err != nil:
		return fmt.Errorf("read %d bytes of rank %d's memory: %w", len(dst), r, err)
	}
	return nil
}

// hasGivenUp reports whether a rank's call has failed. What was just read from its buffer may then be wrong.
func (s *rankState) hasGivenUp() bool { return s.counters[gone].Load() > 0 }

// checkOthers returns an error if a rank has failed whose buffer may have been read.
func (n *Node) checkOthers(w Waiter) error {
	for r := range n.ranks {
		if n.ranks[r].hasGivenUp() {
			return n.fail(awaitFailure(w))
		}
	}
	return nil
}

// awaitFailure waits until this rank, too, knows why another rank's call has failed, or that the other rank has ended.
func awaitFailure(w Waiter) error { return w.Await(func() bool { return false }) }

// readMemory fills to from the memory of a process, from address on (process_vm_readv(2)).
func readMemory(pid int, address uint64, to []byte) error {
	for len(to) > 0 {
		local := [1]unix.Iovec{{Base: &to[0]}}
		local[0].SetLen(len(to))
		remote := [1]unix.RemoteIovec{{Base: uintptr(address), Len: len(to)}}
		n, err := unix.ProcessVMReadv(pid, local[:], remote[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n <= 0:
			return unix.EIO
		default:
			to, address = to[n:], address+uint64(n)
		}
	}
	return nil
}
