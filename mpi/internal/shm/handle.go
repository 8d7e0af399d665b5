package shm

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// HandleSize is the length of an encoded handle, in bytes.
	HandleSize = 4 + 4 + 8 + tokenSize

	tokenSize = 16

	// maxSegment is the longest segment: 16 TiB, an eighth of what x86-64 and arm64 can address.
	maxSegment = 1 << 44
)

// Handle is where another process finds a segment. It works as long as the
// process that made the segment has it open.
type Handle struct {
	PID   int             // the process that made it
	FD    int             // its number there
	Size  int             // bytes of data
	Token [tokenSize]byte // random; stored in the segment, too
}

// Encode gives the handle in HandleSize bytes, little endian.
func (h Handle) Encode() [HandleSize]byte {
	var b [HandleSize]byte
	binary.LittleEndian.PutUint32(b[0:], uint32(h.PID))
	binary.LittleEndian.PutUint32(b[4:], uint32(h.FD))
	binary.LittleEndian.PutUint64(b[8:], uint64(h.Size))
	copy(b[16:], h.Token[:])
	return b
}

// DecodeHandle reads what Encode wrote. It refuses what cannot be a handle.
func DecodeHandle(b []byte) (Handle, error) {
	if len(b) != HandleSize {
		return Handle{}, fmt.Errorf("a handle of %d bytes, not %d", len(b), HandleSize)
	}
	pid, fd, size := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])
	if pid == 0 || pid > math.MaxInt32 || fd > math.MaxInt32 || size == 0 || size > maxSegment {
		return Handle{}, fmt.Errorf("a handle of process %d, file %d, %d bytes", pid, fd, size)
	}
	return Handle{PID: int(pid), FD: int(fd), Size: int(size), Token: [tokenSize]byte(b[16:])}, nil
}
