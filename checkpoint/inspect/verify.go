package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
)

// ToVerify returns the checkpoints that word names, or, if it is empty, all that were committed and not set aside as broken.
func (d Folder) ToVerify(ctx context.Context, dir *checkpoint.Dir, word string) ([]checkpoint.Info, error) {
	step := int64(-1)
	if word = cmp.Or(word, d.Only); word != "" {
		var err error
		if word, err = d.resolve(ctx, dir, word); err != nil {
			return nil, err
		}
		if step, err = ParseStep(word); err != nil {
			return nil, err
		}
	}
	infos, err := dir.List(ctx)
	if err != nil {
		return nil, err
	}
	var chosen []checkpoint.Info
	exact := isStepFolder(word) && vfs.IsDir(filepath.Join(d.Path, word))
	for _, i := range infos {
		name := filepath.Base(i.Path)
		switch {
		case exact && name != word, !exact && strings.Contains(name, ".broken"), word != "" && i.Step != step,
			i.State == checkpoint.StatePartial:
		default:
			chosen = append(chosen, i)
		}
	}
	switch {
	case len(chosen) > 0:
		return chosen, nil
	case step >= 0:
		return nil, d.noStep(step, infos)
	case len(infos) == 0:
		return nil, d.None()
	}
	return nil, fmt.Errorf("%w in %s that was committed and not set aside; ddpbatch ckpt ls lists what is there",
		checkpoint.ErrNone, d.From.Named(d.Path))
}

// Verified is the result of verifying one checkpoint; its JSON names are a contract.
type Verified struct {
	Step  int64  `json:"step"`
	Path  string `json:"path"`
	OK    bool   `json:"ok"`
	Error string `json:"error"`
	// If OK: how many of its chunks were read and checked, and how many it has. Else 0.
	Read   int `json:"read"`
	Chunks int `json:"chunks"`
}

// Verify checks checkpoints one by one, and reads share percent of their chunks. It calls done after each. failed holds the errors of
// those that are not OK. It leaves out checkpoints that have been pruned since they were listed, for example by a live run.
func Verify(ctx context.Context, dir *checkpoint.Dir, infos []checkpoint.Info, share float64, done func(checkpoint.Info, Verified)) (
	rows []Verified, failed []error, err error,
) {
	rows = []Verified{}
	for _, info := range infos {
		read, chunks, err := verifyOne(ctx, dir, info, share)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if err != nil && lacks(info.Path, "MANIFEST.json") { // a removal begins with the manifest; a corrupt checkpoint keeps it
			continue
		}
		row := Verified{Step: info.Step, Path: info.Path, OK: err == nil, Read: read, Chunks: chunks}
		if err != nil {
			row.Error = err.Error()
			failed = append(failed, err)
		}
		rows = append(rows, row)
		done(info, row)
	}
	if len(rows) == 0 {
		return nil, nil, fmt.Errorf("%w: all were removed while they were being checked; verify again", checkpoint.ErrNone)
	}
	return rows, failed, nil
}

// verifyOne checks the checkpoint in the very folder of info. It returns how many of its chunks it has read, and how many there are, or 0
// on an error.
func verifyOne(ctx context.Context, dir *checkpoint.Dir, info checkpoint.Info, share float64) (read, chunks int, err error) {
	c, err := dir.FindFolder(ctx, filepath.Base(info.Path))
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	switch {
	case share == 100:
		read, err = c.Chunks(), c.Verify(ctx)
	case share > 0:
		read, err = c.VerifySample(ctx, share)
	}
	if err != nil {
		return 0, 0, err
	}
	return read, c.Chunks(), nil
}

// lacks reports whether none of the files is in a folder.
func lacks(folder string, files ...string) bool {
	return !slices.ContainsFunc(files, func(name string) bool {
		_, err := os.Lstat(filepath.Join(folder, name))
		return !errors.Is(err, fs.ErrNotExist)
	})
}
