package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ddpbatch/checkpoint"
)

// toVerify are the checkpoints that were named, or all that were committed and not set aside as broken.
func (p ckptPlace) toVerify(ctx context.Context, e *env, dir *checkpoint.Dir, words []string) ([]checkpoint.Info, error) {
	word := p.folder
	if len(words) > 0 {
		word = words[0]
	}
	step := int64(-1)
	if word != "" {
		var err error
		if step, err = parseStep(word); err != nil {
			return nil, err
		}
	}
	infos, err := dir.List(ctx)
	if err != nil {
		return nil, err
	}
	var chosen []checkpoint.Info
	exact := isStepFolder(word) && isDir(filepath.Join(p.path, word))
	for _, i := range infos {
		name := filepath.Base(i.Path)
		switch {
		case exact && name != word, !exact && strings.Contains(name, ".broken"), word != "" && i.Step != step, i.State == checkpoint.StatePartial:
		default:
			chosen = append(chosen, i)
		}
	}
	switch {
	case len(chosen) > 0:
		return chosen, nil
	case step >= 0:
		return nil, p.noStep(e, step, infos)
	case len(infos) == 0:
		return nil, p.none(e)
	}
	return nil, fmt.Errorf("%w in %s that was committed and not set aside; ddpbatch ckpt ls shows what there is", checkpoint.ErrNone, e.named(p.path))
}

// verified is one row of verify; its JSON names are a contract.
type verified struct {
	Step  int64  `json:"step"`
	Path  string `json:"path"`
	OK    bool   `json:"ok"`
	Error string `json:"error"`
	// Of one that is ok: how many of its chunks were read and checked, and how many it has.
	Read   int `json:"read"`
	Chunks int `json:"chunks"`
}

// verifyOne checks the checkpoint in just that folder, and tells how many of its chunks it has read. What is not ok has none.
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

// isGone tells whether a checkpoint that was listed is there no more. A removal begins with the manifest, and what is corrupt keeps it.
func isGone(info checkpoint.Info) bool {
	_, err := os.Lstat(filepath.Join(info.Path, "MANIFEST.json"))
	return errors.Is(err, fs.ErrNotExist)
}
