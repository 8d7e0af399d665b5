package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
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
		&cli.StringFlag{Name: "read-data-subset", Usage: "read and check a sample of the tensors' chunks, as `5%` of them; the same ones every time"},
	}, func(c *cli.Context, words []string) error {
		share, err := shareToRead(c)
		if err != nil {
			return err
		}
		place, err := findCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		dir, err := place.open(e)
		if err != nil {
			return err
		}
		infos, err := place.toVerify(c.Context, e, dir, words[1:])
		if err != nil {
			return err
		}
		return runCkptVerify(c.Context, e, dir, infos, share, c.Bool("json"))
	})
}

// shareToRead is how many per cent of the data verify is to read: 0 to 100.
func shareToRead(c *cli.Context) (float64, error) {
	word := c.String("read-data-subset")
	switch {
	case !c.IsSet("read-data-subset") && c.Bool("read-data"):
		return 100, nil
	case !c.IsSet("read-data-subset"):
		return 0, nil
	case c.Bool("read-data"):
		return 0, usagef("--read-data reads all, --read-data-subset a part of it: give one of them")
	}
	number, ok := strings.CutSuffix(word, "%")
	share, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(share > 0 && share <= 100) {
		return 0, usagef("--read-data-subset is %q: must be more than 0 to 100 per cent, such as 5%%", word)
	}
	return share, nil
}

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

func runCkptVerify(ctx context.Context, e *env, dir *checkpoint.Dir, infos []checkpoint.Info, share float64, asJSON bool) error {
	rows := []verified{}
	var bad []error
	for _, info := range infos {
		read, chunks, err := verifyOne(ctx, dir, info, share)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && isGone(info) {
			continue // pruned since it was listed, as a run that is alive does
		}
		row := verified{Step: info.Step, Path: info.Path, OK: err == nil, Read: read, Chunks: chunks}
		if err != nil {
			row.Error = err.Error()
			bad = append(bad, err)
		}
		rows = append(rows, row)
		if !asJSON && err == nil {
			sample := ""
			if share > 0 && share < 100 {
				sample = fmt.Sprintf(", %d of %s read", read, plural(chunks, "chunk"))
			}
			fmt.Fprintf(e.Out, "step %d: ok%s%s\n", info.Step, suffix(info), sample)
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("%w: all were removed while they were checked; verify again", checkpoint.ErrNone)
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
