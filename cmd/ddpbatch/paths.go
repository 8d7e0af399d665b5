package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// abs resolves path against e's working directory.
func (e *env) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(e.Dir, path)
}

// short is path as a person standing in e's working directory would type it.
func (e *env) short(path string) string {
	if rel, err := filepath.Rel(e.Dir, path); err == nil && !strings.HasPrefix(rel, "..") && e.Dir != "/" {
		return rel
	}
	return path
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// named is a path for a sentence: as a person would type it, and quoted where it could do something to a terminal, or hide where it ends.
func (e *env) named(path string) string {
	text := e.short(e.abs(path))
	if strings.ContainsFunc(text, unsafe) {
		return strconv.Quote(text)
	}
	return text
}
