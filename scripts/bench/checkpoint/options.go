package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

// options are what the command line asks for.
type options struct {
	launches int
	mib      int    // of the state
	dir      string // whose disk is measured
	json     string // file; "": none
}

// usageError is a command line that cannot be understood.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

const usageText = `Checkpoints: ddpbatch beside torch.save and torch.load, zstd, and writing the bare bytes; the same state, in turn.

  ./scripts/bench-checkpoint --quick
  ./scripts/bench-checkpoint --dir /scratch --mib 1024 --json checkpoint.json >checkpoint.md

Tables are Markdown, on standard output; progress goes to standard error.

`

func parseOptions(args []string, stderr io.Writer) (options, error) {
	f := flag.NewFlagSet("bench-checkpoint", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	var o options
	f.IntVar(&o.launches, "launches", 7, "of each side; fewer than 6 give no 95 % interval")
	f.IntVar(&o.mib, "mib", 384, "size of the state, in `MIB`")
	f.StringVar(&o.dir, "dir", "", "`FOLDER` on the disk to measure; default: that for temporary files")
	f.StringVar(&o.json, "json", "", "write all samples to `FILE`, too")
	quick := f.Bool("quick", false, "a first look: 3 launches of 96 MiB, whatever else is asked for")
	err := f.Parse(args)
	switch {
	case err == flag.ErrHelp:
		fmt.Fprint(stderr, usageText)
		f.SetOutput(stderr)
		f.PrintDefaults()
		return o, err
	case err != nil:
		return o, usagef("%v", err)
	case f.NArg() > 0:
		return o, usagef("%q is not expected; every option has a name", f.Arg(0))
	case o.launches < 1 || o.launches > 1000:
		return o, usagef("-launches is %d; it must be 1 to 1000", o.launches)
	case o.mib < 12 || o.mib > 1<<16:
		return o, usagef("-mib is %d; it must be 12 to %d", o.mib, 1<<16)
	}
	if *quick {
		o.launches, o.mib = 3, 96
	}
	if o.dir == "" {
		o.dir = os.TempDir()
	}
	if info, err := os.Stat(o.dir); err != nil || !info.IsDir() {
		return o, usagef("-dir: %s is no folder", o.dir)
	}
	return o, nil
}
