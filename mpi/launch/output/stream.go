package output

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"ddpbatch/internal/lines"

	"golang.org/x/sys/unix"
)

const (
	// lateOutput is how long a stream stays open after its worker ended: a process that left the worker's group may hold it
	// forever.
	lateOutput = time.Second

	// maxPipe is the largest size of a pipe (pipe(7), pipe-max-size). So much is still read when lateOutput is over, since a slow
	// console may have delayed reading.
	maxPipe = 1 << 20

	readSize = 32 << 10
)

// Stream is one worker's standard output or error. Pipe, Begin, Drop and End must be called by the goroutine that starts and ends
// the worker. The other methods may be called by any goroutine at any time.
type Stream struct {
	r, w  *os.File // the pipe; w is the worker's
	file  *os.File // nil: no log
	sinks []sink   // console, log of all ranks
	log   *slog.Logger
	done  chan struct{} // closed when everything is written

	taking sync.Mutex // held from a read until what it read is in tail
	grown  atomic.Int64
	tail   tail
	room   int    // bytes that kept may still take
	kept   []byte // see Kept

	late      bool // lateOutput has passed since End
	lateBytes int  // read since
}

// sink gets the stream line by line, until it fails.
type sink struct {
	lines.Writer
	failed string // the message to log then
	err    error
}

// Pipe is the worker's end of the stream.
func (s *Stream) Pipe() *os.File { return s.w }

// Begin copies until the worker, and every process that inherited the pipe, have closed it, or until End's bound. It is called once
// the worker has its end of the pipe.
func (s *Stream) Begin() {
	s.w.Close()
	go func() {
		defer close(s.done)
		defer s.closeFile()
		defer s.r.Close()
		s.copy()
	}()
}

// Drop discards a stream whose worker was not started.
func (s *Stream) Drop() {
	s.w.Close()
	s.r.Close()
	s.closeFile()
	close(s.done)
}

// End bounds how long the stream is still read. It is called when the worker has ended.
func (s *Stream) End() {
	// An error means that the copying is over already.
	_ = s.r.SetReadDeadline(time.Now().Add(lateOutput))
}

// Done is closed when all of the stream is written.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Grown is how many bytes the worker has written so far.
func (s *Stream) Grown() int64 { return s.grown.Load() }

// Tail returns the last n lines so far, without their line breaks, oldest first. There are fewer if the stream, or the 16 KiB of it
// that are kept, has fewer. They contain the worker's bytes, which may not be valid text.
func (s *Stream) Tail(n int) []string { return s.tail.lines(n) }

// Keep makes the stream keep the next limit bytes that are read for Kept.
func (s *Stream) Keep(limit int) {
	s.taking.Lock()
	defer s.taking.Unlock()
	s.room, s.kept = limit, nil
}

// Kept returns the kept bytes that were read since Keep, or since the last call of Kept.
func (s *Stream) Kept() string {
	s.taking.Lock()
	defer s.taking.Unlock()
	text := string(s.kept)
	s.kept = nil
	return text
}

// CaughtUp reports whether Tail has everything that the worker has written so far. A worker that has ended writes no more, although
// another process may still hold its pipe.
func (s *Stream) CaughtUp() bool {
	s.taking.Lock()
	defer s.taking.Unlock()
	conn, err := s.r.SyscallConn()
	if err != nil {
		return true // the copying is over
	}
	pipe := []unix.PollFd{{Events: unix.POLLIN}}
	err = conn.Control(func(fd uintptr) {
		pipe[0].Fd = int32(fd)
		_, _ = unix.Poll(pipe, 0) // after an error, nothing is known to be readable
	})
	return err != nil || pipe[0].Revents&unix.POLLIN == 0
}

// take reads some bytes into the tail.
func (s *Stream) take(buf []byte) (n int, err error) {
	conn, err := s.r.SyscallConn()
	if err != nil {
		return 0, err
	}
	waitErr := conn.Read(func(fd uintptr) bool {
		s.taking.Lock()
		defer s.taking.Unlock()
		for n, err = unix.Read(int(fd), buf); errors.Is(err, unix.EINTR); n, err = unix.Read(int(fd), buf) {
		}
		if n > 0 {
			s.grown.Add(int64(n))
			s.tail.add(buf[:n])
			s.kept = append(s.kept, buf[:min(n, s.room)]...)
			s.room -= min(n, s.room)
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (s *Stream) copy() {
	var fileErr error
	buf := make([]byte, readSize)
	for {
		n, err := s.read(buf)
		if n > 0 {
			if s.file != nil && fileErr == nil {
				if _, fileErr = s.file.Write(buf[:n]); fileErr != nil {
					s.log.Warn("a worker's log cannot be written any more; the console goes on", "path", s.file.Name(), "error", fileErr)
				}
			}
			for i := range s.sinks {
				s.pass(&s.sinks[i], buf[:n])
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				s.log.Warn("a worker's output was lost", "error", err)
			}
			break
		}
	}
	for i := range s.sinks {
		if s.sinks[i].err == nil {
			_ = s.sinks[i].Finish() // there is nothing left to write
		}
	}
}

func (s *Stream) pass(to *sink, p []byte) {
	if to.err != nil {
		return
	}
	if _, to.err = to.Write(p); to.err != nil {
		s.log.Warn(to.failed, "error", to.err)
	}
}

// read waits for bytes. Once lateOutput has passed since End, it reads only what the pipe already holds.
func (s *Stream) read(buf []byte) (int, error) {
	n, err := s.take(buf)
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
	n, err = s.take(buf)
	s.lateBytes += n
	return n, err
}

func (s *Stream) closeFile() {
	if s.file == nil {
		return
	}
	if err := s.file.Close(); err != nil {
		s.log.Warn("the end of a worker's log may be lost", "path", s.file.Name(), "error", err)
	}
}

const maxTail = 16 << 10 // bytes

// tail keeps the last bytes of a stream in a ring. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	ring []byte // grows up to maxTail
	next int    // where the next byte goes, once the ring is full
}

func (t *tail) add(p []byte) {
	p = p[max(0, len(p)-maxTail):]
	t.mu.Lock()
	defer t.mu.Unlock()
	room := min(maxTail-len(t.ring), len(p))
	t.ring = append(t.ring, p[:room]...)
	for p = p[room:]; len(p) > 0; {
		n := copy(t.ring[t.next:], p)
		p = p[n:]
		t.next = (t.next + n) % maxTail
	}
}

func (t *tail) lines(n int) []string {
	t.mu.Lock()
	text := make([]byte, 0, len(t.ring))
	text = append(text, t.ring[t.next:]...)
	text = append(text, t.ring[:t.next]...)
	t.mu.Unlock()
	if len(text) == 0 || n <= 0 {
		return nil
	}
	all := bytes.Split(bytes.TrimSuffix(text, []byte{'\n'}), []byte{'\n'})
	if len(text) == maxTail && len(all) > 1 {
		all = all[1:] // the beginning of this line is not kept
	}
	all = all[max(0, len(all)-n):]
	lines := make([]string, len(all))
	for i, line := range all {
		lines[i] = string(line)
	}
	return lines
}
