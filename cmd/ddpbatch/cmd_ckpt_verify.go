package main

import (
	"context"
	"errors"
	"fmt"
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
