package text

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Dir is the folder that a person works in, absolute: paths are read, and written, as seen from there.
type Dir string

// Abs resolves a path that a person typed.
func (d Dir) Abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(string(d), path)
}

// Short is path as a person standing in the folder would type it.
func (d Dir) Short(path string) string {
	if rel, err := filepath.Rel(string(d), path); err == nil && !strings.HasPrefix(rel, "..") && d != "/" {
		return rel
	}
	return path
}

// Named is a path for a sentence: as a person would type it, and quoted where it could do something to a terminal, or hide where it ends.
func (d Dir) Named(path string) string {
	text := d.Short(d.Abs(path))
	if strings.ContainsFunc(text, Unsafe) {
		return strconv.Quote(text)
	}
	return text
}
