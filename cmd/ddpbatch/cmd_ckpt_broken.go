package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"ddpbatch/checkpoint"
)

// latest opens the newest checkpoint that counts. Where there are only such as were set aside, the error says so.
func (p ckptPlace) latest(ctx context.Context, e *env, dir *checkpoint.Dir) (*checkpoint.Checkpoint, error) {
	found, err := dir.FindLatest(ctx)
	if !errors.Is(err, checkpoint.ErrNone) && !errors.Is(err, checkpoint.ErrCorrupt) {
		return found, err
	}
	infos, failed := dir.List(ctx)
	if failed != nil {
		return nil, err
	}
	var aside []string
	for _, i := range infos {
		switch name := filepath.Base(i.Path); {
		case strings.Contains(name, ".broken"):
			aside = append(aside, name)
		case i.State != checkpoint.StatePartial:
			return nil, err
		}
	}
	if len(aside) == 0 {
		return nil, err
	}
	return nil, p.onlyBroken(ctx, e, dir, aside)
}

// onlyBroken is the error where folders that were set aside, oldest first, are all that there is.
func (p ckptPlace) onlyBroken(ctx context.Context, e *env, dir *checkpoint.Dir, folders []string) error {
	newest := folders[len(folders)-1]
	which, of := "one that was found damaged and set aside: "+newest, ""
	if older := len(folders) - 1; older > 0 {
		which, of = fmt.Sprintf("those that were found damaged and set aside: %s and %d older", newest, older), "of the newest, "
	}
	return fmt.Errorf("%w in %s but %s; %s%s", checkpoint.ErrNone, e.named(p.path), which, of, p.whyBroken(ctx, e, dir, newest))
}

// whyBroken says what is wrong with a folder that was set aside, as far as that can be told without reading data, and what to do.
func (p ckptPlace) whyBroken(ctx context.Context, e *env, dir *checkpoint.Dir, folder string) string {
	const remedy = "; to go on from one, put a good copy in its place, named without .broken"
	c, err := dir.FindFolder(ctx, folder)
	if err == nil {
		c.Close() // it was only read from
		name, _, _ := strings.Cut(folder, ".broken")
		return fmt.Sprintf("manifest and chunk tables are whole: ddpbatch ckpt verify --read-data %s says what is wrong with its data; where that finds nothing, rename it to %s",
			e.named(filepath.Join(p.path, folder)), name)
	}
	if damage, ok := errors.AsType[*checkpoint.CorruptError](err); ok {
		return filepath.Base(damage.Path) + ": " + damage.Detail + remedy
	}
	if errors.Is(err, checkpoint.ErrNone) {
		return "MANIFEST.json is not there" + remedy
	}
	return err.Error()
}
