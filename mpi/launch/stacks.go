package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"ddpbatch/mpi/launch/watch"
)

const (
	stacksLimit = 8 * time.Second  // for the stacks of all of a node's workers
	hangGrace   = 10 * time.Second // at most, between TERM and KILL of workers that hang

	stacksLines = 40 // of those that have no file, in the report
	stacksWidth = 160
)

// stacks tells what a worker's threads were doing when it was about to be ended, since it hung.
type stacks struct {
	Rank int    `json:"rank"`
	Path string `json:"path,omitempty"` // the file; "": there is none
	Text string `json:"text,omitempty"` // its beginning where there is no file, or what went wrong
}

// inspect has the stacks of this node's workers written down, which ends those that are written in Go, and the others when that
// is done.
func (s *supervisor) inspect() {
	if s.stop.stage >= signalled || s.inspected != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stacksLimit)
	var waiting []*worker
	for _, w := range s.workers {
		if w.ended.IsZero() {
			w.words = w.tail()
			waiting = append(waiting, w)
		}
	}
	dumper := s.cfg.dumper()
	all := make(chan []stacks, 1)
	s.inspected = all
	go func() {
		defer cancel()
		all <- dumpAll(ctx, dumper, waiting)
	}()
}

func (c AgentConfig) dumper() watch.Dumper {
	path, err := lookPath("py-spy", c.Dir, c.Env)
	if err != nil {
		return watch.Dumper{}
	}
	return watch.Dumper{PySpy: path}
}

// dumpAll returns what is there when ctx ends. It leaves goroutines behind for as long as the kernel, or the file system,
// does not answer.
func dumpAll(ctx context.Context, dumper watch.Dumper, workers []*worker) []stacks {
	done := make(chan stacks, len(workers))
	for _, w := range workers {
		go func() { done <- dump(ctx, dumper, w) }()
	}
	// A dump says by itself that its time is over, unless its file cannot be written.
	timer := time.NewTimer(stacksLimit + time.Second)
	defer timer.Stop()
	var list []stacks
	for range workers {
		select {
		case one := <-done:
			list = append(list, one)
		case <-timer.C:
			return list
		}
	}
	return list
}

func dump(ctx context.Context, dumper watch.Dumper, w *worker) stacks {
	var text bytes.Buffer
	err := dumper.Dump(ctx, w.process.Pid(), &text)
	one := stacks{Rank: w.place.Rank}
	if path := w.logs.stacks; path != "" {
		if err = errors.Join(err, os.WriteFile(path, text.Bytes(), 0o600)); err == nil {
			one.Path = path
			return one
		}
	}
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	one.Text = beginning(text.String())
	return one
}

// beginning is so much of a text as a report has room for.
func beginning(text string) string {
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if i == stacksLines {
			b.WriteString("...\n")
			break
		}
		line = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, line)
		if runes := []rune(line); len(runes) > stacksWidth {
			line = string(runes[:stacksWidth])
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// report is what a report says of them, below the line of the rank.
func (s stacks) report() string {
	if s.Path != "" {
		return "    stacks: " + s.Path + "\n"
	}
	var b strings.Builder
	for line := range strings.Lines(s.Text) {
		b.WriteString("    | " + line)
	}
	return b.String()
}

// stacksOf says where a worker's stacks go, beside its logs; "": nowhere.
func (r *round) stacksOf(p Place, files logs) string {
	switch {
	case r.cfg.HangAfter <= 0:
		return ""
	case r.cfg.RunDir != nil:
		return r.cfg.RunDir.LogPath(r.cfg.Attempt, r.cfg.Host, p.Rank, "stacks")
	case files.errorFile != "": // below --log-dir
		return filepath.Join(filepath.Dir(files.errorFile), "stacks.txt")
	}
	return ""
}
