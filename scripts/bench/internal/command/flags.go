package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
)

// Flags are the options that all programs have. Each defines its own beside them, before Parse.
type Flags struct {
	*flag.FlagSet
	Launches int
	JSON     string // file; "": none
	Program  string // ddpbatch's path; "": this tree's is to be built

	text  string
	quick bool
	less  map[string]string // values of options that --quick asks for
}

// NewFlags takes what -h says before the options, and what --quick asks for beside 3 launches: in words, and as values of options.
func NewFlags(text, quick string, less map[string]string) *Flags {
	f := &Flags{FlagSet: flag.NewFlagSet("", flag.ContinueOnError), text: text, less: map[string]string{"launches": "3"}}
	maps.Copy(f.less, less)
	f.SetOutput(io.Discard)
	f.IntVar(&f.Launches, "launches", 7, "of each side; fewer than 6 give no 95 % interval")
	f.BoolVar(&f.quick, "quick", false, "a first look: 3 launches"+quick+"; what is named beside it stays")
	f.StringVar(&f.JSON, "json", "", "write all samples to `FILE`, too")
	return f
}

// TakeProgram defines the option --ddpbatch.
func (f *Flags) TakeProgram() {
	f.Func("ddpbatch", "measure `PROGRAM`, not this tree's", func(path string) error {
		path, err := filepath.Abs(path) // launches have folders of their own
		if err == nil {
			f.Program, err = exec.LookPath(path)
		}
		return err
	})
}

// Parse reads the command line, or prints help. What goes wrong with it is a [UsageError].
func (f *Flags) Parse(args []string, stderr io.Writer) error {
	err := f.FlagSet.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stderr, f.text)
		f.SetOutput(stderr)
		f.PrintDefaults()
		return err
	case err != nil:
		return Usagef("%v", err)
	case f.NArg() > 0:
		return Usagef("%q is not expected; every option has a name", f.Arg(0))
	}
	f.Visit(func(given *flag.Flag) { delete(f.less, given.Name) })
	for name, value := range f.less {
		if f.quick {
			_ = f.Set(name, value) // they are good
		}
	}
	if f.Launches < 1 || f.Launches > 1000 {
		return Usagef("-launches is %d; it must be 1 to 1000", f.Launches)
	}
	return nil
}
