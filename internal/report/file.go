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

// ErrNotOurs: what has the name already is no report, and is left alone.
var ErrNotOurs = errors.New("what is there is no report of ddpbatch's")

// FileName is what the page of a run is called where nobody says: the run directory's name, and of an element its index.
func FileName(run *rundir.Dir) string {
	name := filepath.Base(run.Whole().Path())
	if index, ok := run.Index(); ok {
		name += "-" + strconv.Itoa(index)
	}
	return name + ".html"
}

// Save writes the page to a file that only its owner can read, whole or not at all. An earlier report of that name is replaced; of anything
// else the error is ErrNotOurs.
func (d *Data) Save(ctx context.Context, path string) error {
	if err := checkReplaceable(path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return replace.FileWith(ctx, vfs.OS{}, path, replace.Options{Mode: 0o600}, d.Write)
}

func checkReplaceable(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
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
