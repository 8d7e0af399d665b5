package defaults

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
)

// Starter is a job file of the user's own to start others from.
type Starter struct {
	Name    string // the file's, without .toml
	Summary string // its first line, where that is a comment
	Path    string
}

// StarterFolder is where the user's starters are; empty: nowhere.
func (p Places) StarterFolder() string {
	if p.User == "" {
		return ""
	}
	return filepath.Join(p.User, "templates")
}

// Starters lists the user's starters by their names. Files that could be no job's name are passed over.
func (p Places) Starters() ([]Starter, error) {
	folder := p.StarterFolder()
	if folder == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var starters []Starter
	for _, entry := range entries {
		name, isTOML := strings.CutSuffix(entry.Name(), ".toml")
		if !isTOML || !rundir.IsJobName(name) {
			continue
		}
		s := Starter{Name: name, Path: filepath.Join(folder, entry.Name())}
		body, err := s.Read()
		if err != nil {
			s.Summary = err.Error()
		} else {
			s.Summary = summary(body)
		}
		starters = append(starters, s)
	}
	return starters, nil
}

// Read is the text of a starter.
func (s Starter) Read() (string, error) { return readTrusted(s.Path) }

// summary is what a job file says of itself in its first line.
func summary(body string) string {
	const most = 100 // bytes; a longer one breaks the table
	first, _, _ := strings.Cut(body, "\n")
	comment, ok := strings.CutPrefix(strings.TrimSpace(first), "#")
	if !ok {
		return ""
	}
	comment = strings.TrimSpace(comment)
	if cut := text.Cut(comment, most); cut != comment {
		return cut + "..."
	}
	return comment
}
