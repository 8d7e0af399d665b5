package main

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"
)

// version is the release; CHANGELOG.md tells what each brought.
const version = "0.1.0"

func versionString() string {
	return fmt.Sprintf("ddpbatch %s (%s %s/%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersionCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		Description: example("ddpbatch version --json"),
		Flags:       []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 0, 0); err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(e, map[string]string{
					"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			fmt.Fprintln(e.Out, versionString())
			return nil
		},
	}
}
