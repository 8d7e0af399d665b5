package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"ddpbatch/internal/replace"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/vfs"
)

// ErrNotOurs means that the existing file is not a report and was left alone.
var ErrNotOurs = errors.New("the existing file is not a report of ddpbatch")

// FileName returns the default name of a run's page: the name of the run directory, with the index if the run is an element.
func FileName(run *rundir.Dir) string {
	name := filepath.Base(run.Whole().Path())
	if index, ok := run.Index(); ok {
		name += "-" + strconv.Itoa(index)
	}
	return name + ".html"
}

// Save writes the page to a file that only its owner can read. The file is written completely or not at all. An existing report is
// replaced; for any other existing file Save returns ErrNotOurs.
func (d *Data) Save(ctx context.Context, path string) error {
	if err := checkReplaceable(path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return replace.FileWith(ctx, vfs.OS{}, path, replace.Options{Mode: 0o600}, d.Write)
}

func checkReplaceable(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) { // the error would name the temporary file in it
			return fmt.Errorf("the folder %s does not exist: make it, or name another file", filepath.Dir(path))
		}
		return nil
	}
	f, _, err := vfs.OpenRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 200))
	if err != nil {
		return err
	}
	if !bytes.Contains(head, []byte(Marker)) {
		return ErrNotOurs
	}
	return nil
}
