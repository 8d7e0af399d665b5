package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"ddpbatch/internal/rundir"
)

// console is where a simulated job's output comes together: whole lines go to the screen and
// into the job's log, and on a terminal a progress line stays below them.
type console struct {
	e       *env
	run     *rundir.Dir
	log     *os.File
	columns int // 0: no terminal, no progress line

	mu       sync.Mutex
	progress string // what the last line of the screen shows
	stop     chan struct{}
	stopped  chan struct{}
}

// progressPoll is how often the progress line is brought up to date.
const progressPoll = 100 * time.Millisecond

func openConsole(e *env, run *rundir.Dir, logPath string) (*console, error) {
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the job's log: %w", err)
	}
	c := &console{e: e, run: run, log: log, stop: make(chan struct{}), stopped: make(chan struct{})}
	c.columns, _ = e.Terminal(e.Out)
	go c.watch()
	return c, nil
}

// stream returns the writer of one agent's output; the console ends it on close.
func (c *console) stream(stderr bool) io.WriteCloser {
	return &stream{console: c, stderr: stderr}
}

func (c *console) close() error {
	close(c.stop)
	<-c.stopped
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	if err := c.log.Close(); err != nil {
		return fmt.Errorf("close the job's log: %w", err)
	}
	return nil
}

// watch redraws the progress line from the run's metrics.
func (c *console) watch() {
	defer close(c.stopped)
	if c.columns == 0 {
		return
	}
	ticker := time.NewTicker(progressPoll)
	defer ticker.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-ticker.C:
			c.mu.Lock()
			c.clear()
			c.draw()
			c.mu.Unlock()
		}
	}
}

// clear takes the progress line off the screen. c.mu is held.
func (c *console) clear() {
	if c.progress != "" {
		fmt.Fprint(c.e.Out, "\r\x1b[K")
		c.progress = ""
	}
}

// draw puts the newest progress line below what is on the screen. c.mu is held.
func (c *console) draw() {
	if c.columns == 0 {
		return
	}
	if m, ok, err := c.run.LastMetrics(); err == nil && ok {
		c.progress = progressLine(m, c.columns)
		fmt.Fprint(c.e.Out, c.progress)
	}
}

func (c *console) write(lines []byte, stderr bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	to := c.e.Out
	if stderr {
		to = c.e.Err
	}
	_, err := to.Write(lines)
	_, logErr := c.log.Write(lines)
	c.draw()
	return errors.Join(err, logErr)
}

// progressLine is a bar with the newest figures, in fewer than columns characters.
func progressLine(m rundir.Metrics, columns int) string {
	share := 0.0
	if m.Steps > 0 {
		share = min(1, float64(m.Step)/float64(m.Steps))
	}
	text := fmt.Sprintf(" step %d/%d  epoch %d  loss %.4g  %.0f samples/s", m.Step, m.Steps, m.Epoch, m.Loss, m.SamplesPerSec)
	width := min(30, columns-len(text)-3)
	if width < 5 {
		return text[:min(len(text), columns-1)]
	}
	full := int(share * float64(width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]" + text
}

// stream hands whole lines to the console.
type stream struct {
	console *console
	stderr  bool
	part    []byte
}

// maxLine bounds what is held back of a line that does not end.
const maxLine = 64 << 10

func (s *stream) Write(p []byte) (int, error) {
	s.part = append(s.part, p...)
	end := bytes.LastIndexByte(s.part, '\n') + 1
	if end == 0 && len(s.part) > maxLine {
		end = len(s.part)
	}
	if end > 0 {
		if err := s.console.write(s.part[:end], s.stderr); err != nil {
			return 0, err
		}
		s.part = append(s.part[:0], s.part[end:]...)
	}
	return len(p), nil
}

func (s *stream) Close() error {
	if len(s.part) == 0 {
		return nil
	}
	err := s.console.write(append(s.part, '\n'), s.stderr)
	s.part = nil
	return err
}
