package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
)

func newCkptVerifyCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "verify", Usage: "check manifests, sizes and tables of all checkpoints, or of one; with --read-data every byte", ArgsUsage: "RUN [STEP]",
		Description: example("ddpbatch ckpt verify 123", "ddpbatch ckpt verify --read-data 123 4000"),
	}, 1, 2, []cli.Flag{
		&cli.BoolFlag{Name: "read-data", Usage: "read and check every byte of the tensors, too"},
	}, func(c *cli.Context, words []string) error {
		place, err := findCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		dir, err := place.open(e)
		if err != nil {
			return err
		}
		infos, err := place.toVerify(c.Context, dir, words[1:])
		if err != nil {
			return err
		}
		return runCkptVerify(c.Context, e, dir, infos, c.Bool("read-data"), c.Bool("json"))
	})
}

// toVerify are the checkpoints that were named, or all that were committed and not set aside as broken.
func (p ckptPlace) toVerify(ctx context.Context, dir *checkpoint.Dir, words []string) ([]checkpoint.Info, error) {
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
	if len(chosen) == 0 {
		return nil, checkpoint.ErrNone
	}
	return chosen, nil
}

// verified is one row of verify; its JSON names are a contract.
type verified struct {
	Step  int64  `json:"step"`
	Path  string `json:"path"`
	OK    bool   `json:"ok"`
	Error string `json:"error"`
}

func runCkptVerify(ctx context.Context, e *env, dir *checkpoint.Dir, infos []checkpoint.Info, readData, asJSON bool) error {
	rows := []verified{}
	var bad []error
	for _, info := range infos {
		err := verifyOne(ctx, dir, info, readData)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && isGone(info) {
			continue // pruned since it was listed, as a run that is alive does
		}
		row := verified{Step: info.Step, Path: info.Path, OK: err == nil}
		if err != nil {
			row.Error = err.Error()
			bad = append(bad, err)
		}
		rows = append(rows, row)
		if !asJSON && err == nil {
			fmt.Fprintf(e.Out, "step %d: ok%s\n", info.Step, suffix(info))
		}
	}
	if len(rows) == 0 {
		return checkpoint.ErrNone
	}
	failed := verdictOf(bad, len(rows))
	if !asJSON {
		return failed
	}
	if err := printJSON(e, rows); err != nil || failed == nil {
		return err
	}
	return &codeError{code: exitCode(failed)}
}

// verifyOne checks the checkpoint in just that folder.
func verifyOne(ctx context.Context, dir *checkpoint.Dir, info checkpoint.Info, readData bool) error {
	c, err := dir.FindFolder(ctx, filepath.Base(info.Path))
	if err != nil {
		return err
	}
	defer c.Close()
	if readData {
		return c.Verify(ctx)
	}
	return nil
}

// isGone tells whether a checkpoint that was listed is there no more. A removal begins with the manifest, and what is corrupt keeps it.
func isGone(info checkpoint.Info) bool {
	_, err := os.Lstat(filepath.Join(info.Path, "MANIFEST.json"))
	return errors.Is(err, fs.ErrNotExist)
}

// suffix tells a save of a step from the first one, which has the plain name.
func suffix(info checkpoint.Info) string {
	if name := filepath.Base(info.Path); strings.Contains(name, ".") {
		return " (" + name + ")"
	}
	return ""
}

// verdictOf is the error of what went wrong with some of so many checkpoints. One that is corrupt decides; what could only not be read leaves open whether it is.
func verdictOf(bad []error, checked int) error {
	if len(bad) == 0 {
		return nil
	}
	err := errors.Join(bad...)
	if code := exitCode(err); code == exitFailed && len(bad) < checked {
		return &codeError{code: exitPartly, err: err}
	}
	return err
}
