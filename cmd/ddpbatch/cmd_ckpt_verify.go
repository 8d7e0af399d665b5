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
	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

func newCkptVerifyCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "verify", Usage: "check manifests, sizes and tables of all checkpoints, or of one; with --read-data every byte",
		ArgsUsage:   "RUN [STEP]",
		Description: example("ddpbatch ckpt verify 123", "ddpbatch ckpt verify --read-data 123 4000"),
	}, 1, 2, []cli.Flag{
		&cli.BoolFlag{Name: "read-data", Usage: "also read and check every byte of the tensors"},
		&cli.StringFlag{Name: "read-data-subset",
			Usage: "read and check a sample of the tensors' chunks, such as `5%`; the same ones every time"},
	}, func(c *cli.Context, words []string) error {
		share, err := shareToRead(c)
		if err != nil {
			return err
		}
		folder, dir, err := openCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		infos, err := folder.ToVerify(c.Context, dir, append(words, "")[1])
		if err != nil {
			return err
		}
		return runCkptVerify(c.Context, e, dir, infos, share, c.Bool("json"))
	})
}

// shareToRead returns how many per cent of the data verify must read: 0 to 100.
func shareToRead(c *cli.Context) (float64, error) {
	word := c.String("read-data-subset")
	switch {
	case !c.IsSet("read-data-subset") && c.Bool("read-data"):
		return 100, nil
	case !c.IsSet("read-data-subset"):
		return 0, nil
	case c.Bool("read-data"):
		return 0, usage.Errorf("--read-data reads everything, --read-data-subset a part: give only one of them")
	}
	number, ok := strings.CutSuffix(word, "%")
	share, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(share > 0 && share <= 100) {
		return 0, usage.Errorf("--read-data-subset is %q, but must be more than 0 and at most 100 per cent, such as 5%%", word)
	}
	return share, nil
}

func runCkptVerify(ctx context.Context, e *env, dir *checkpoint.Dir, infos []checkpoint.Info, share float64, asJSON bool) error {
	rows, bad, err := inspect.Verify(ctx, dir, infos, share, func(info checkpoint.Info, row inspect.Verified) {
		if asJSON || !row.OK {
			return
		}
		sample := ""
		if share > 0 && share < 100 {
			sample = fmt.Sprintf(", %d of %s read", row.Read, text.Plural(row.Chunks, "chunk"))
		}
		fmt.Fprintf(e.Out, "step %d: ok%s%s\n", info.Step, suffix(info), sample)
	})
	if err != nil {
		return err
	}
	failed := verifyError(bad, len(rows))
	if !asJSON {
		return failed
	}
	if err := printJSON(e, rows); err != nil || failed == nil {
		return err
	}
	return &exit.Error{Code: exitCode(failed)}
}

// suffix distinguishes a later save of a step from the first one, which has the plain name.
func suffix(info checkpoint.Info) string {
	if name := filepath.Base(info.Path); strings.Contains(name, ".") {
		return " (" + name + ")"
	}
	return ""
}

// verifyError returns the error for some of the checked checkpoints. A corrupt checkpoint decides; one that could not be read may be
// corrupt or not.
func verifyError(bad []error, checked int) error {
	if len(bad) == 0 {
		return nil
	}
	err := errors.Join(bad...)
	if code := exitCode(err); code == exit.Failed && len(bad) < checked {
		return &exit.Error{Code: exitPartly, Err: err}
	}
	return err
}
