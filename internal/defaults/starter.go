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

// Starter is a job file of the user's own to start other job files from.
type Starter struct {
	Name    string // the file's name without .toml
	Summary string // its first line, if that is a comment
	Path    string
}

// StarterFolder returns the folder of the user's starters, or "" if there is none.
func (p Places) StarterFolder() string {
	if p.User == "" {
		return ""
	}
	return filepath.Join(p.User, "templates")
}

// Starters lists the user's starters, sorted by name. It skips files whose names are not valid names of jobs.
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

// Read returns the text of a starter.
func (s Starter) Read() (string, error) { return readTrusted(s.Path) }

// summary returns the comment in the first line of a job file.
func summary(body string) string {
	const most = 100 // bytes; a longer one would break the table
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
