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

// mostSaved bounds the number of names that are read in a folder of checkpoints.
const mostSaved = 10000

// LastSaved returns when something was last saved in a folder of checkpoints, by the clock of its file system. If the run saves with this
// package, that is the time of the newest commit, even if it is superseded. Otherwise it is the time of the newest file or folder, which
// the user's own program has made. It is zero if nothing was saved. LastSaved reads only names and times, of the first 10,000 entries.
func LastSaved(folder string) (time.Time, error) {
	paths, _, err := savedIn(folder)
	var newest time.Time
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && info.ModTime().After(newest) { // on an error it is gone, or not committed
			newest = info.ModTime()
		}
	}
	return newest, err
}

// The kinds of entries that a user's own program has made in a folder of checkpoints.
const (
	KindFile   = "file"
	KindFolder = "folder"
	KindOther  = "other" // for example a symbolic link
)

// Foreign is a file or folder that a user's own program has made in a folder of checkpoints. Its JSON names are a contract
// (docs/cli/report.md).
type Foreign struct {
	Name    string    `json:"name"`
	Kind    string    `json:"kind"`  // one of the Kind constants
	Bytes   int64     `json:"bytes"` // of a file; else 0
	Changed time.Time `json:"changed"`
}

// ListForeign returns what a user's own program has saved in a folder of checkpoints, newest first. It returns none if the folder does not
// exist, or has checkpoints of this package. It reads only names, sizes and times, of the first 10,000 entries, and follows no link.
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

// savedIn returns the paths whose times show when something was saved in a folder of checkpoints. If the folder is ours (it has checkpoints
// of this package, or records of attempts), these are the paths of the manifests, which may not exist yet. If not, they are what a user's
// own program may have made.
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
