package simulate

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"ddpbatch/internal/lines"
	"ddpbatch/internal/rundir"
)

// console is where a simulated job's output comes together: whole lines go to the screen and
// into the job's log, and on a terminal a progress line stays below them. A screen or a log that
// cannot be written to any more (a closed terminal, a full disk) does not end the job.
type console struct {
	e       Env
	run     *rundir.Dir
	log     *os.File
	columns int  // 0: no terminal, no progress line
	quiet   bool // what agents write goes into the log alone

	mu       sync.Mutex
	progress string // what the last line of the screen is to show
	shown    bool   // and does
	failed   error  // the first write that went wrong

	stop    chan struct{}
	stopped chan struct{}
}

// progressPoll is how often the progress line is brought up to date.
const progressPoll = 20 * time.Millisecond

// openConsole opens the console of a job. One of several that share the screen shows no progress, a quiet one nothing of the agents'
// either.
func openConsole(e Env, run *rundir.Dir, logPath string, shares, quiet bool) (*console, error) {
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the job's log: %w", err)
	}
	c := &console{e: e, run: run, log: log, quiet: quiet, stop: make(chan struct{}), stopped: make(chan struct{})}
	if !shares && !quiet {
		c.columns, _ = e.Terminal(e.Out)
	}
	go c.watch()
	return c, nil
}

// stream returns the writer of one agent's output; the console ends it on close.
func (c *console) stream(stderr bool) io.WriteCloser {
	return &stream{lines.Writer{To: shown{c, stderr}, Max: maxLine, Redraw: true}}
}

func (c *console) close() error {
	close(c.stop)
	<-c.stopped
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	if err := c.log.Close(); err != nil {
		c.note(fmt.Errorf("close the job's log: %w", err))
	}
	return c.failed
}

// watch brings the progress line up to date from the run's metrics.
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
			c.refresh()
			c.mu.Unlock()
		}
	}
}

// refresh shows the newest progress line. c.mu is held.
func (c *console) refresh() {
	if c.columns == 0 {
		return
	}
	line := c.progress
	if m, ok, err := c.run.LastMetrics(); err == nil && ok {
		line = progressLine(m, c.columns)
	}
	if line != c.progress || !c.shown {
		c.clear()
		if c.progress = line; line != "" {
			fmt.Fprint(c.e.Out, line)
			c.shown = true
		}
	}
}

// clear takes the progress line off the screen. c.mu is held.
func (c *console) clear() {
	if c.shown {
		fmt.Fprint(c.e.Out, "\r\x1b[K")
		c.shown = false
	}
}

// write logs whole lines, and shows them.
func (c *console) write(lines []byte, stderr, show bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	to := c.e.Out
	if stderr {
		to = c.e.Err
	}
	if !show {
		to = io.Discard
	}
	if _, err := to.Write(lines); err != nil {
		c.note(fmt.Errorf("show the job's output: %w", err))
	}
	if _, err := c.log.Write(lines); err != nil {
		c.note(fmt.Errorf("write the job's log: %w", err))
	}
	c.refresh()
}

// note keeps the first error. c.mu is held.
func (c *console) note(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

// progressLine is a bar with the newest figures, as far as the job tells them, in fewer than columns characters.
func progressLine(m rundir.Metrics, columns int) string {
	share := 0.0
	if m.Steps > 0 {
		share = max(0, min(1, float64(m.Step)/float64(m.Steps))) // the file may say anything
	}
	text := " " + figures(m)
	width := min(30, columns-len(text)-3)
	if width < 5 {
		return text[:min(len(text), columns-1)]
	}
	full := int(share * float64(width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]" + text
}

// figures are those of the newest metrics. A program of the user's may tell no more than its step.
func figures(m rundir.Metrics) string {
	text := fmt.Sprintf("step %d", m.Step)
	if m.Steps > 0 {
		text = fmt.Sprintf("%d/%d", m.Step, m.Steps)
	}
	if m.Epoch != nil {
		text += fmt.Sprintf(" epoch %d", *m.Epoch)
	}
	loss := "-"
	if m.Loss != nil {
		loss = strconv.FormatFloat(*m.Loss, 'g', 4, 64)
	}
	text += " loss " + loss
	if m.SamplesPerSec > 0 {
		text += fmt.Sprintf(" %.0f samples/s", m.SamplesPerSec)
	}
	if m.Steps > 0 && m.Epoch != nil {
		text += fmt.Sprintf(" comm %.0f %% overlap %.0f %% %s left", 100*m.CommShare, 100*m.Overlap, time.Duration(m.LeftS)*time.Second)
	}
	return text
}

// stream is one stream of one agent on its way to the console, in whole lines.
type stream struct{ lines.Writer }

// maxLine bounds what is held back of a line that does not end; it is more than an agent ever writes
// without a line's end.
const maxLine = 256 << 10

func (s *stream) Close() error { return s.Finish() }

// shown takes a stream's lines.
type shown struct {
	console *console
	stderr  bool
}

// Write never fails: an agent whose output nobody takes would be ended by the next line that it writes.
func (s shown) Write(p []byte) (int, error) {
	s.console.write(p, s.stderr, !s.console.quiet)
	return len(p), nil
}
