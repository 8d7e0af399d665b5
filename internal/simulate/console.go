package simulate

import (
	"bytes"
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

// console combines the output of a simulated job: whole lines go to the screen and into the job's log, and on a terminal a progress line
// stays below them. A failing write to the screen or the log (a closed terminal, a full disk) does not end the job.
type console struct {
	e       Env
	run     *rundir.Dir
	log     *os.File
	columns int    // 0: not a terminal, no progress line
	quiet   bool   // the agents' output goes only into the log
	label   string // precedes each line on the screen, but not in the log

	mu       sync.Mutex
	progress string // the text of the progress line
	shown    bool   // the progress line is on the screen
	failed   error  // the first write error

	stop    chan struct{}
	stopped chan struct{}
}

// progressPoll is the interval at which the progress line is updated.
const progressPoll = 20 * time.Millisecond

// openConsole opens the console of a job. Jobs that share the screen each have a label, and show no progress line. A quiet job does not
// show the agents' output either.
func openConsole(e Env, run *rundir.Dir, logPath, label string, quiet bool) (*console, error) {
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the job's log: %w", err)
	}
	c := &console{e: e, run: run, log: log, quiet: quiet, label: label, stop: make(chan struct{}), stopped: make(chan struct{})}
	if label == "" && !quiet {
		c.columns, _ = e.Terminal(e.Out)
	}
	go c.watch()
	return c, nil
}

// stream returns the writer of one agent's output. The console's close ends it.
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

// watch updates the progress line from the run's metrics.
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

// refresh shows the current progress line. The caller holds c.mu.
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

// clear removes the progress line from the screen. The caller holds c.mu.
func (c *console) clear() {
	if c.shown {
		fmt.Fprint(c.e.Out, "\r\x1b[K")
		c.shown = false
	}
}

// write writes whole lines to the log, and shows them.
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
	if _, err := to.Write(c.labeled(lines)); err != nil {
		c.note(fmt.Errorf("show the job's output: %w", err))
	}
	if _, err := c.log.Write(lines); err != nil {
		c.note(fmt.Errorf("write the job's log: %w", err))
	}
	c.refresh()
}

// labeled returns whole lines with the console's label before each of them.
func (c *console) labeled(text []byte) []byte {
	if c.label == "" {
		return text
	}
	var all []byte
	for line := range bytes.Lines(text) {
		all = append(append(all, c.label...), line...)
	}
	return all
}

// note keeps the first error. The caller holds c.mu.
func (c *console) note(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

// progressLine returns a bar with the newest figures that the job reports, in fewer than columns characters.
func progressLine(m rundir.Metrics, columns int) string {
	share := 0.0
	if m.Steps > 0 {
		share = max(0, min(1, float64(m.Step)/float64(m.Steps))) // the file may hold any values
	}
	text := " " + figures(m)
	width := min(30, columns-len(text)-3)
	if width < 5 {
		return text[:min(len(text), columns-1)]
	}
	full := int(share * float64(width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]" + text
}

// figures formats the newest metrics. A user's program may report only its step.
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

// stream passes one stream of an agent to the console, in whole lines.
type stream struct{ lines.Writer }

// maxLine limits how much of an unfinished line is held back. It is more than an agent ever writes without a newline.
const maxLine = 256 << 10

func (s *stream) Close() error { return s.Finish() }

// shown passes a stream's lines to the console.
type shown struct {
	console *console
	stderr  bool
}

// Write never fails: an agent whose output cannot be written would be killed by the next line that it writes.
func (s shown) Write(p []byte) (int, error) {
	s.console.write(p, s.stderr, !s.console.quiet)
	return len(p), nil
}
