package output

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
)

// ParseFilters reads the value of torchrun's --duplicate-stdout-filters and --duplicate-stderr-filters: texts between commas, in
// which two commas stand for one. An empty text, which every line holds, is left out.
func ParseFilters(s string) []string {
	var filters []string
	var b strings.Builder
	end := func() {
		if b.Len() > 0 {
			filters = append(filters, b.String())
		}
		b.Reset()
	}
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != ',':
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == ',':
			b.WriteByte(',')
			i++
		default:
			end()
		}
	}
	end()
	return filters
}

// filtered is a file of all ranks: it takes the lines that hold one of some texts. Several streams write to it.
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
	for _, text := range f.texts {
		if bytes.Contains(line, text) {
			return true
		}
	}
	return false
}

func (f *filtered) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Write(p)
}

// sieve takes whole lines of one stream, each with its label, and passes those on that are wanted.
type sieve struct {
	to    *filtered
	label int    // bytes before the worker's own words
	kept  []byte // between two writes: none
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
