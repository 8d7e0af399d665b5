package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"ddpbatch/internal/replace"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
)

const recordSchema = 1

// Record describes a copy. It is stored next to it.
type Record struct {
	Schema   int         `json:"schema"` // 1
	Snapshot string      `json:"snapshot"`
	Source   string      `json:"source"`  // the top of the tree
	WorkDir  string      `json:"workdir"` // the working directory in it, relative
	Files    int         `json:"files"`   // including links
	Bytes    int64       `json:"bytes"`
	Commit   string      `json:"commit,omitempty"` // the commit that was checked out
	Changed  []string    `json:"changed,omitempty"`
	Changes  int         `json:"changes"` // number of files that differ from the commit; Changed names the first
	DiffCut  bool        `json:"diff_cut,omitempty"`
	Modules  []Submodule `json:"submodules,omitempty"`
	Omitted  int         `json:"omitted"` // number of files and directories that were left out; LeftOut has the first
	LeftOut  []Omission  `json:"left_out"`
}

// Submodule is a submodule whose files are in the copy too.
type Submodule struct {
	Path   string `json:"path"`
	Commit string `json:"commit"`
}

// writeRecord writes the record of a copy of size bytes.
func (s *Selection) writeRecord(ctx context.Context, dir string, names Names, size int64) (Record, error) {
	r := Record{
		Schema: recordSchema, Snapshot: s.request.Snapshot, Source: shown(s.Root), WorkDir: shown(s.Dir), Bytes: size,
		Omitted: s.omitted, LeftOut: append([]Omission{}, s.leftOut...),
	}
	for _, m := range s.members {
		if !m.mode.IsDir() {
			r.Files++
		}
	}
	for _, repo := range s.repos {
		if repo.path == "." {
			r.Commit = repo.commit
		} else {
			r.Modules = append(r.Modules, Submodule{shown(repo.path), repo.commit})
		}
	}
	if s.git != nil {
		var diff bytes.Buffer
		err := s.diff(ctx, &r, &diff)
		if err == nil {
			err = writeFile(ctx, filepath.Join(dir, names.Diff), diff.Bytes())
		}
		if err != nil {
			return r, err
		}
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return r, err
	}
	return r, writeFile(ctx, filepath.Join(dir, names.Record), append(data, '\n'))
}

func writeFile(ctx context.Context, path string, data []byte) error {
	return replace.FileWith(ctx, vfs.OS{}, path, replace.Options{Mode: 0o600}, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Summary describes in a line what was copied.
func (r Record) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s of %s", text.Plural(r.Files, "file"), text.Bytes(uint64(r.Bytes)), r.Source)
	if r.Commit != "" {
		fmt.Fprintf(&b, ", commit %s", text.Cut(r.Commit, 12))
		if r.Changes > 0 {
			fmt.Fprintf(&b, " and changes to %s", text.Plural(r.Changes, "file"))
		}
	}
	if r.Omitted > 0 {
		names := make([]string, len(r.LeftOut))
		for i, o := range r.LeftOut {
			names[i] = o.Path
		}
		fmt.Fprintf(&b, "; %d left out (%s)", r.Omitted, few(names, r.Omitted))
	}
	return b.String()
}

// few names the first of several names. all is their number.
func few(names []string, all int) string {
	const most = 3
	shown := min(most, len(names))
	line := strings.Join(names[:shown], ", ")
	if more := all - shown; more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}

// shown returns a path for people and for JSON: quoted if it is not UTF-8, or could affect a terminal.
func shown(path string) string {
	if !utf8.ValidString(path) || strings.ContainsFunc(path, text.Unsafe) {
		return strconv.Quote(path)
	}
	return path
}
