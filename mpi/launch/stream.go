package launch

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"ddpbatch/internal/lines"
)

const (
	// lateOutput is how long a stream stays open after its worker ended: a
	// process that left the worker's group may hold it for ever.
	lateOutput = time.Second

	// maxPipe is the most that a pipe holds (pipe(7), pipe-max-size): what is
	// still read when that time is over, since a slow console may have kept us.
	maxPipe = 1 << 20
)

// stream is stdout or stderr of one worker on its way to a log file and the
// console.
type stream struct {
	r, w  *os.File // the pipe; w is the worker's
	file  *os.File // nil: no log
	lines *lines.Writer
	log   *slog.Logger
	done  chan struct{} // closed when all of it is written

	late      bool // end's time is over
	lateBytes int  // read since
}

// newStream opens the pipe and, where path is not "", the log file.
func newStream(path string, to io.Writer, log *slog.Logger) (*stream, error) {
	s := &stream{lines: &lines.Writer{To: to}, log: log, done: make(chan struct{})}
	var err error
	if path != "" {
		if s.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
			return nil, fmt.Errorf("open a worker's log: %w", err)
		}
	}
	if s.r, s.w, err = os.Pipe(); err != nil {
		s.closeFile()
		return nil, fmt.Errorf("make a worker's pipe: %w", err)
	}
	return s, nil
}

// begin copies until the worker, and all that inherited the pipe, closed it, or
// until end's bound. It is called once the worker has its end of the pipe.
func (s *stream) begin() {
	s.w.Close()
	go func() {
		defer close(s.done)
		defer s.closeFile()
		defer s.r.Close()
		s.copy()
	}()
}

// drop gives the stream up before its worker was started.
func (s *stream) drop() {
	s.w.Close()
	s.r.Close()
	s.closeFile()
}

// end bounds what is still read: the worker is gone.
func (s *stream) end() {
	// An error means that the copying is over already.
	_ = s.r.SetReadDeadline(time.Now().Add(lateOutput))
}

func (s *stream) copy() {
	var fileErr, consoleErr error
	buf := make([]byte, 32<<10)
	for {
		n, err := s.read(buf)
		if n > 0 && s.file != nil && fileErr == nil {
			if _, fileErr = s.file.Write(buf[:n]); fileErr != nil {
				s.log.Warn("a worker's log cannot be written any more; the console goes on", "path", s.file.Name(), "error", fileErr)
			}
		}
		if n > 0 && consoleErr == nil {
			if _, consoleErr = s.lines.Write(buf[:n]); consoleErr != nil {
				s.log.Warn("workers' output cannot be shown any more", "error", consoleErr)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				s.log.Warn("a worker's output was lost", "error", err)
			}
			break
		}
	}
	if consoleErr == nil {
		_ = s.lines.Finish() // nobody is left to hear of it
	}
}

// read reads what comes, and, once end's time is over, what is there.
func (s *stream) read(buf []byte) (int, error) {
	n, err := s.r.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.late = true
	}
	if !s.late {
		return n, err
	}
	if s.lateBytes += n; s.lateBytes > maxPipe {
		return n, os.ErrDeadlineExceeded
	}
	if err := s.r.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		return n, err
	}
	if n > 0 {
		return n, nil
	}
	n, err = s.r.Read(buf)
	s.lateBytes += n
	return n, err
}

func (s *stream) closeFile() {
	if s.file == nil {
		return
	}
	if err := s.file.Close(); err != nil {
		s.log.Warn("the end of a worker's log may be lost", "path", s.file.Name(), "error", err)
	}
}
