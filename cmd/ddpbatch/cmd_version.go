package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/mpi/transport/ucx"
)

func newVersionCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version, and the source that this program was built from",
		Description: example("ddpbatch version --json"),
		Flags:       []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 0, 0); err != nil {
				return err
			}
			library, devices := rdma()
			if c.Bool("json") {
				own := ownBuild()
				return printJSON(e, map[string]any{
					"version": version, "commit": own.Commit, "time": own.Time, "modified": own.Modified,
					"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "ucx": library, "rdma": devices,
				})
			}
			fmt.Fprintf(e.Out, "%s\nUCX: %s\nRDMA: %s\n", versionString(), library, devices)
			return nil
		},
	}
}

// rdma describes the UCX library and the RDMA devices of this machine, or says why there are none.
func rdma() (library, devices string) {
	v, file, err := ucx.Library()
	if library = fmt.Sprintf("%v from %s", v, file); err != nil {
		library = "none: " + err.Error()
	}
	found, err := ucx.Devices(os.DirFS("/"))
	if err != nil {
		return library, "none: " + err.Error()
	}
	var names []string
	for _, d := range found {
		names = append(names, d.String())
	}
	return library, strings.Join(names, ", ")
}
