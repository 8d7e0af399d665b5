package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

// mostSaved bounds the names that LastSaved looks at.
const mostSaved = 10000

// LastSaved is when something was saved last in a folder of checkpoints, by the clock of its file system: of a run
// whose checkpoints are this package's, the newest commit, be it superseded since; else the newest file or folder, which a program of
// one's own has made. It is zero where nothing was saved. Only names and times are read, of the first 10,000 entries.
func LastSaved(folder string) (time.Time, error) {
	dir, err := os.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("look for saves: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(mostSaved)
	if err != nil && !errors.Is(err, io.EOF) {
		return time.Time{}, fmt.Errorf("look for saves: %w", err)
	}
	var ours, others time.Time
	found := false
	for _, name := range names {
		path, newest := filepath.Join(folder, name), &others
		f, isCheckpoint := manifest.ParseFolder(name)
		_, _, isRecord := manifest.ParseRecordName(name)
		found = found || isCheckpoint || isRecord
		switch {
		case isRecord, f.Broken, strings.HasPrefix(name, "."), strings.HasSuffix(name, manifest.TmpSuffix):
			continue
		case isCheckpoint:
			path, newest = filepath.Join(path, manifest.Name), &ours
		}
		if info, err := os.Lstat(path); err == nil && info.ModTime().After(*newest) { // an error: it is gone, or not committed
			*newest = info.ModTime()
		}
	}
	if found {
		return ours, nil
	}
	return others, nil
}
