package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

// mostSaved bounds the names that are looked at in a folder of checkpoints.
const mostSaved = 10000

// LastSaved is when something was saved last in a folder of checkpoints, by the clock of its file system: of a run
// whose checkpoints are this package's, the newest commit, be it superseded since; else the newest file or folder, which a program of
// one's own has made. It is zero where nothing was saved. Only names and times are read, of the first 10,000 entries.
func LastSaved(folder string) (time.Time, error) {
	paths, _, err := savedIn(folder)
	var newest time.Time
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && info.ModTime().After(newest) { // an error: it is gone, or not committed
			newest = info.ModTime()
		}
	}
	return newest, err
}

// The kinds of what a program of one's own has made in a folder of checkpoints.
const (
	KindFile   = "file"
	KindFolder = "folder"
	KindOther  = "other" // a symbolic link, say
)

// Foreign is a file or folder in a folder of checkpoints that a program of one's own has made. Its JSON names are a contract
// (docs/cli/report.md).
type Foreign struct {
	Name    string    `json:"name"`
	Kind    string    `json:"kind"`  // one of the Kind constants
	Bytes   int64     `json:"bytes"` // of a file; else 0
	Changed time.Time `json:"changed"`
}

// ListForeign returns what a program of one's own has saved in a folder of checkpoints, the newest first: nothing of a folder that is not
// there, or that has checkpoints of this package. Only names, sizes and times are read, of the first 10,000 entries; no link is followed.
func ListForeign(folder string) ([]Foreign, error) {
	paths, ours, err := savedIn(folder)
	if ours {
		return nil, err
	}
	var list []Foreign
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil {
			continue // it is gone
		}
		f := Foreign{Name: info.Name(), Kind: KindOther, Changed: info.ModTime()}
		switch {
		case info.IsDir():
			f.Kind = KindFolder
		case info.Mode().IsRegular():
			f.Kind, f.Bytes = KindFile, info.Size()
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Foreign) int { return cmp.Or(b.Changed.Compare(a.Changed), cmp.Compare(a.Name, b.Name)) })
	return list, err
}

// savedIn returns the paths whose times tell when something was saved in a folder of checkpoints. If the folder is ours (it has checkpoints
// of this package, or records of attempts), they are where manifests are, or will be. If not, they are what a program of one's own may have
// made.
func savedIn(folder string) (paths []string, ours bool, err error) {
	dir, err := os.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for saves: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(mostSaved)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("look for saves: %w", err)
	}
	var manifests, others []string
	for _, name := range names {
		f, isCheckpoint := manifest.ParseFolder(name)
		_, _, isRecord := manifest.ParseRecordName(name)
		ours = ours || isCheckpoint || isRecord
		switch {
		case isRecord, f.Broken, strings.HasPrefix(name, "."), strings.HasSuffix(name, manifest.TmpSuffix):
		case isCheckpoint:
			manifests = append(manifests, filepath.Join(folder, name, manifest.Name))
		default:
			others = append(others, filepath.Join(folder, name))
		}
	}
	if ours {
		return manifests, true, nil
	}
	return others, false, nil
}
