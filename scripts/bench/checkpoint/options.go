package main

import (
	"io"
	"os"

	"ddpbatch/scripts/bench/internal/command"
)

// options are what the command line asks for.
type options struct {
	launches int
	mib      int    // of the state
	dir      string // whose disk is measured
	json     string // file; "": none
	figures  bool   // only what has no peer
}

const usageText = `Checkpoints: ddpbatch beside torch.save and torch.load, zstd, and writing the bare bytes; the same state, in turn.

  ./scripts/bench-checkpoint --quick
  ./scripts/bench-checkpoint --figures --mib 128
  ./scripts/bench-checkpoint --dir /scratch --mib 1024 --json checkpoint.json >checkpoint.md

Tables are Markdown, on standard output; progress goes to standard error.

`

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	f := command.NewFlags(usageText, " of 96 MiB", map[string]string{"mib": "96"})
	f.IntVar(&o.mib, "mib", 384, "size of the state, in `MIB`")
	f.StringVar(&o.dir, "dir", os.TempDir(), "`FOLDER` on the disk to measure")
	f.BoolVar(&o.figures, "figures", false, "only checksums, incompressible data, memory, latest and commit, which need neither PyTorch nor zstd")
	if err := f.Parse(args, stderr); err != nil {
		return o, err
	}
	o.launches, o.json = f.Launches, f.JSON
	if o.mib < 12 || o.mib > 1<<16 {
		return o, command.Usagef("-mib is %d; it must be 12 to %d", o.mib, 1<<16)
	}
	if info, err := os.Stat(o.dir); err != nil || !info.IsDir() {
		return o, command.Usagef("-dir: %s is no folder", o.dir)
	}
	return o, nil
}
