package output

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"

	"ddpbatch/internal/lines"
)

// To is where the lines of all workers go.
type To struct {
	Stdout, Stderr io.Writer // the agent's own; nil: not shown
	// Filtered are the files of all ranks, for Config's OutFilters and ErrFilters; "": none.
	Filtered Paths
}

// Paths are the files of one worker's two streams; "": none.
type Paths struct{ Out, Err string }

// Mux brings the output of one agent's workers together. It is safe for concurrent use.
type Mux struct {
	cfg       Config
	log       *slog.Logger
	out, errs console
	filtered  [2]*filtered // of standard output and error; nil: none
}

// console is one of the agent's own streams. Both have one lock, since both may be the same terminal.
type console struct {
	mu *sync.Mutex
	w  io.Writer
}

func (c console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.Write(p)
}

// NewMux opens the files of all ranks, if there are any. It reports lost output to log, which may be nil.
func NewMux(cfg Config, to To, log *slog.Logger) (*Mux, error) {
	if err := ParsePrefix(cfg.Prefix); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	m := &Mux{cfg: cfg, log: cmp.Or(log, slog.New(slog.DiscardHandler)), out: console{&mu, to.Stdout}, errs: console{&mu, to.Stderr}}
	for i, want := range []struct {
		path    string
		filters []string
	}{{to.Filtered.Out, cfg.OutFilters}, {to.Filtered.Err, cfg.ErrFilters}} {
		if want.path == "" || len(want.filters) == 0 {
			continue
		}
		var err error
		if m.filtered[i], err = openFiltered(want.path, want.filters); err != nil {
			m.Close()
			return nil, err
		}
	}
	return m, nil
}

// Close closes the files of all ranks. Every stream must be done or dropped before.
func (m *Mux) Close() {
	for _, f := range m.filtered {
		if f == nil {
			continue
		}
		if err := f.file.Close(); err != nil {
			m.log.Warn("the end of the log of all ranks may be lost", "path", f.file.Name(), "error", err)
		}
	}
}

// Worker makes the two streams of one worker. Existing files are appended to. A stream that is to go to its file only, but has
// none, goes to the console.
func (m *Mux) Worker(w Worker, paths Paths) (out, errs *Stream, err error) {
	if out, err = m.stream(w, Out, paths.Out); err != nil {
		return nil, nil, err
	}
	if errs, err = m.stream(w, Err, paths.Err); err != nil {
		out.Drop()
		return nil, nil, err
	}
	return out, errs, nil
}

func (m *Mux) stream(w Worker, which Mode, path string) (*Stream, error) {
	s := &Stream{log: m.log, done: make(chan struct{})}
	to, filtered := m.out, m.filtered[0]
	if which == Err {
		to, filtered = m.errs, m.filtered[1]
	}
	if to.w != nil && m.cfg.shows(w, which, path != "") {
		s.sinks = append(s.sinks,
			sink{lines.Writer{To: to, Label: Label(m.cfg.Prefix, w), Redraw: true}, "workers' output cannot be shown any more", nil})
	}
	if filtered != nil {
		label := Label(cmp.Or(m.cfg.Prefix, DefaultPrefix), w) // without a label, the lines' writer would not be known
		s.sinks = append(s.sinks, sink{
			lines.Writer{To: &sieve{to: filtered, label: len(label)}, Label: label},
			"the log of all ranks cannot be written any more", nil,
		})
	}
	var err error
	if path != "" {
		if s.file, err = openLog(path); err != nil {
			return nil, fmt.Errorf("open the log of rank %d: %w", w.Rank, err)
		}
	}
	if s.r, s.w, err = os.Pipe(); err != nil {
		s.closeFile()
		return nil, fmt.Errorf("make a pipe for the output of rank %d: %w", w.Rank, err)
	}
	return s, nil
}

// shows reports whether the console shows one stream of one worker. It does unless the rank is filtered out, or the stream goes to
// its file only. As in torchrun, a tee takes precedence over a redirect.
func (c Config) shows(w Worker, which Mode, hasFile bool) bool {
	if len(c.LocalRanks) > 0 && !slices.Contains(c.LocalRanks, w.LocalRank) ||
		len(c.Ranks) > 0 && !slices.Contains(c.Ranks, w.Rank) {
		return false
	}
	fileOnly := c.Redirects.Of(w.LocalRank)&^c.Tees.Of(w.LocalRank)&which != 0
	return !fileOnly || !hasFile
}

// openLog opens a log to append to. The lines of earlier rounds stay.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// filtered is a file of all ranks, for the lines that contain one of some texts. Several streams write to it.
type filtered struct {
	texts [][]byte

	mu   sync.Mutex
	file *os.File
}

func openFiltered(path string, filters []string) (*filtered, error) {
	file, err := openLog(path)
	if err != nil {
		return nil, fmt.Errorf("open the log of all ranks: %w", err)
	}
	f := &filtered{file: file}
	for _, text := range filters {
		f.texts = append(f.texts, []byte(text))
	}
	return f, nil
}

func (f *filtered) holds(line []byte) bool {
	return slices.ContainsFunc(f.texts, func(text []byte) bool { return bytes.Contains(line, text) })
}

func (f *filtered) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Write(p)
}

// sieve gets whole lines of one stream, each with its label, and passes on those that the filters match.
type sieve struct {
	to    *filtered
	label int    // bytes before the worker's own text
	kept  []byte // the matching lines of one Write; reused
}

func (s *sieve) Write(p []byte) (int, error) {
	s.kept = s.kept[:0]
	for line := range bytes.Lines(p) {
		if s.to.holds(line[min(s.label, len(line)):]) {
			s.kept = append(s.kept, line...)
		}
	}
	if len(s.kept) == 0 {
		return len(p), nil
	}
	if _, err := s.to.Write(s.kept); err != nil {
		return 0, err
	}
	return len(p), nil
}
