package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// UsageError is a command line that cannot be understood.
type UsageError struct{ message string }

func (e *UsageError) Error() string { return e.message }

// Usagef makes a [UsageError].
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Main runs a program until it is done or a signal interrupts it, says what went wrong, and exits.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(end(name, err, os.Stderr))
}

// end says what went wrong, if anything did, and gives the exit code for it.
func end(name string, err error, stderr io.Writer) (code int) {
	var usage *UsageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v; try -h\n", name, err)
		return 2
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(stderr, "%s: interrupted; its processes and temporary files are gone\n", name)
		return 130
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	return 1
}

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

// Peers reads a list of those to run beside ddpbatch: known words, or none.
func Peers(list string, known []string) ([]string, error) {
	if list == "none" {
		return nil, nil
	}
	return Words("peers", list, known)
}

// Words reads a list of known words, or all. They may be written with _ or -, as other libraries do.
func Words(flag, list string, known []string) ([]string, error) {
	if list == "all" {
		return known, nil
	}
	var out []string
	for word := range strings.SplitSeq(list, ",") {
		word = strings.NewReplacer("_", "", "-", "").Replace(strings.TrimSpace(word))
		if !slices.Contains(known, word) {
			return nil, Usagef("-%s: there is no %q; it is one of %s", flag, word, strings.Join(known, ", "))
		}
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out, nil
}

// Numbers reads a list of numbers from low to high.
func Numbers(flag, list string, low, high int) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < low || n > high {
			return nil, Usagef("-%s: %q is no number from %d to %d", flag, word, low, high)
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out, nil
}
