package testkit

import (
	"log/slog"
	"strings"
	"sync"
)

// Journal is a log that may be read while it is written. The zero Journal is empty and ready.
type Journal struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String is all that was written.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Lines are those that were written, each with its end.
func (j *Journal) Lines() []string {
	lines := strings.SplitAfter(j.String(), "\n")
	return lines[:len(lines)-1]
}

// Logger writes to j.
func (j *Journal) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }
