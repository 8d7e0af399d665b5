package jobfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"ddpbatch/internal/vfs"
)

// maxText bounds the length of a text in bytes, far above that of any job file or script template.
const maxText = 1 << 20

// pipeTimeout is how long ReadText waits for the writer of a pipe to close it.
const pipeTimeout = 30 * time.Second

// ReadText reads a file or a pipe that a person names, such as a job file. It stops when ctx ends.
func ReadText(ctx context.Context, path string) ([]byte, error) {
	return readTextWithin(ctx, path, pipeTimeout)
}

func readTextWithin(ctx context.Context, path string, timeout time.Duration) ([]byte, error) {
	f, isPipe, err := openText(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if isPipe { // a pipe may stay open forever
		if err := f.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			return nil, err
		}
	}
	defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })() // has no effect on a regular file
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	switch {
	case ctx.Err() != nil: // the text may be incomplete
		err = fmt.Errorf("%w while reading %s", context.Cause(ctx), path)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%s is a pipe that its writer has not closed after %v; write the text to a file first", path, timeout)
	case err == nil && len(text) > maxText:
		err = fmt.Errorf("%s is longer than %d bytes", path, maxText)
	case err == nil && len(text) == 0 && isPipe:
		err = fmt.Errorf("%s is a pipe to which nothing was written", path)
	}
	return text, err
}

// openText opens a file, or a pipe such as a shell's <(...). It does not wait for a pipe without a writer. It opens a pipe only once, as a
// writer that waits for a reader must not lose the first one.
func openText(path string) (f *os.File, isPipe bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	if isPipe = info.Mode()&fs.ModeNamedPipe != 0; isPipe {
		f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	} else {
		f, _, err = vfs.OpenRegular(path)
	}
	return f, isPipe, err
}
