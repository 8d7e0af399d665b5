package proc

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
)

const maxExecutable = 64 << 20 // bytes of an executable that are read to tell what it is

var errTooMuch = errors.New("too much of the file would have to be read")

// IsGo tells whether a process runs a program written in Go, by what its executable holds (debug/buildinfo). A program that is
// not, and whose file is no executable that this can read, is none.
func IsGo(pid int) (bool, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false, fmt.Errorf("look at the program of process %d: %w", pid, err)
	}
	defer f.Close()
	_, err = buildinfo.Read(&boundedReader{f, maxExecutable})
	if errors.Is(err, errTooMuch) {
		return false, fmt.Errorf("look at the program of process %d: %w", pid, err)
	}
	return err == nil, nil
}

// boundedReader reads no more than so many bytes in all.
type boundedReader struct {
	r    io.ReaderAt
	left int64
}

func (b *boundedReader) ReadAt(p []byte, at int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errTooMuch
	}
	return b.r.ReadAt(p, at)
}
