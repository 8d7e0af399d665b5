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
	// ownMemory in place of the region of a reference: the rest is an address in its rank's memory.
	ownMemory = maxRegions + 1

	// These are the lengths in bytes from which buffers are read in their rank's own memory: below, what the kernel does for each page costs
	// more than a second copy. It does most where several ranks read the same pages, whose readers it counts.
	remoteFrom   = 64 << 10
	scatterFrom  = 1 << 20
	manyReadFrom = 4 << 20
	never        = math.MaxInt
)

// ReadsOwner tells whether this process can read the memory of the one that made s. The kernel allows it to whoever may attach to that
// process (ptrace(2), PTRACE_MODE_ATTACH_REALCREDS): the same user's, as a rule; not under Yama's ptrace_scope, nor where a container
// forbids the call. The process's number may be another one's here, if it was made in another namespace: so the token is compared.
func (s *Segment) ReadsOwner() bool {
	var token [tokenSize]byte
	err := readMemory(s.handle.PID, binary.LittleEndian.Uint64(s.mem[tokenSize:]), token[:])
	return err == nil && token == s.handle.Token
}

// noteAddress leaves in the segment where the process that made it has mapped it, for ReadsOwner.
func (s *Segment) noteAddress() {
	binary.LittleEndian.PutUint64(s.mem[tokenSize:], addressOf(s.mem))
}

func addressOf(buf []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))) }

// fetch fills dst from rank r's buffer, from offset on. resolve has found that.
func (n *Node) fetch(w Waiter, dst []byte, r, offset int) error {
	state := &n.ranks[r]
	if state.view != nil {
		copy(dst, state.view[offset:])
		return nil
	}
	err := readMemory(state.pid, state.address+uint64(offset), dst)
	switch {
	case errors.Is(err, unix.ESRCH): // whoever waits learns what became of it
		return w.Await(func() bool { return false })
	case err != nil:
		return fmt.Errorf("%w: read %d bytes of rank %d's memory: %w", ErrCorrupt, len(dst), r, err)
	}
	return nil
}

// readMemory fills to from address on in the memory of a process (process_vm_readv(2)).
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
