package snapshot

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"ddpbatch/internal/redact"
)

// A pattern is an item of code.include or code.exclude, similar to those of .gitignore. Without a slash it matches names at any depth, with
// one it matches paths from the top of the tree. * and ? stand for characters within a name, and ** between slashes for any number of
// directories. With a slash at its end it matches only directories. A pattern that matches a directory applies to everything in it.
type pattern struct {
	parts      []string
	folderOnly bool
}

const (
	maxPattern = 1024 // bytes; no path is longer than four of them
	anyFolders = "**"
)

var errPattern = errors.New(`a pattern is a name, such as "*.yaml", or a path from the top of the tree, such as ` +
	`"configs/**/*.yaml" or "data/"`)

func parsePattern(text string) (pattern, error) {
	fault := func(why string) (pattern, error) {
		return pattern{}, fmt.Errorf("%s: %s: %w", redact.Quoted(text, redact.Shown), why, errPattern)
	}
	if len(text) > maxPattern {
		return fault("it is too long")
	}
	rest, folderOnly := strings.CutSuffix(text, "/")
	rest, fromTop := strings.CutPrefix(rest, "/")
	parts := strings.Split(rest, "/")
	if len(parts) == 1 && !fromTop && parts[0] != anyFolders {
		parts = []string{anyFolders, parts[0]}
	}
	for _, part := range parts {
		if _, err := path.Match(part, ""); err != nil {
			return fault("a bracket or a backslash has no end")
		}
		if part == "" || part == "." || part == ".." {
			return fault("a part of it is empty, . or ..")
		}
	}
	return pattern{parts: parts, folderOnly: folderOnly}, nil
}

// parsePatterns parses patterns that have been validated.
func parsePatterns(texts []string) ([]pattern, error) {
	list := make([]pattern, len(texts))
	for i, text := range texts {
		var err error
		if list[i], err = parsePattern(text); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// matchAny reports whether one of the patterns matches a path, or a directory that contains it.
func matchAny(list []pattern, name string, isDir bool) bool {
	return slices.ContainsFunc(list, func(p pattern) bool { return p.match(name, isDir) })
}

func (p pattern) match(name string, isDir bool) bool {
	state := p.begin()
	names := strings.Split(name, "/")
	for i, one := range names {
		state = p.after(state, one)
		if isFolder := isDir || i < len(names)-1; state[len(p.parts)] && (isFolder || !p.folderOnly) {
			return true
		}
	}
	return false
}

// mayHold reports whether something in a directory could match one of the patterns.
func mayHold(list []pattern, folder string) bool {
	return slices.ContainsFunc(list, func(p pattern) bool {
		state := p.begin()
		for one := range strings.SplitSeq(folder, "/") {
			if state = p.after(state, one); state[len(p.parts)] {
				return true
			}
		}
		return slices.Contains(state, true)
	})
}

// begin returns the state before the first name: state[i] says that the first i parts may have matched the names so far.
func (p pattern) begin() []bool {
	state := make([]bool, len(p.parts)+1)
	state[0] = true
	return p.skip(state)
}

// skip lets each ** that is next match zero directories.
func (p pattern) skip(state []bool) []bool {
	for i, part := range p.parts {
		if state[i] && part == anyFolders {
			state[i+1] = true
		}
	}
	return state
}

// after returns the state after one more name.
func (p pattern) after(state []bool, name string) []bool {
	next := make([]bool, len(state))
	for i, part := range p.parts {
		if !state[i] {
			continue
		}
		if part == anyFolders {
			next[i] = true
		} else if ok, _ := path.Match(part, name); ok { // parsePattern has checked the part
			next[i+1] = true
		}
	}
	return p.skip(next)
}
