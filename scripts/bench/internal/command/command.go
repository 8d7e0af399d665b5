package command

import (
	"cmp"
	"context"
	"encoding/json"
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

	"ddpbatch/internal/exit"
	"ddpbatch/internal/usage"
)

// Options are the options of a program. They include [Common].
type Options interface{ common() Common }

// Program parses the options of a command line, and runs with a directory for its temporary files.
type Program[O Options] struct {
	Name  string
	Parse func(args []string, stderr io.Writer) (O, error)
	Do    func(ctx context.Context, o O, dir string, stdout, stderr io.Writer) error
}

// Main runs a program until it is done or a signal interrupts it, prints an error if there is one, and exits.
func (p Program[O]) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(end(p.Name, err, os.Stderr))
}

// Run runs the program and removes its temporary files.
func (p Program[O]) Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := p.Parse(args, stderr)
	if err != nil {
		return err
	}
	below, err := filepath.Abs(cmp.Or(o.common().Below, os.TempDir())) // launches have their own working directories
	if err != nil {
		return fmt.Errorf("find the folder for temporary files: %w", err)
	}
	dir, err := os.MkdirTemp(below, p.Name+"-")
	if err != nil {
		return fmt.Errorf("make a folder for temporary files: %w", err)
	}
	defer os.RemoveAll(dir)
	return p.Do(ctx, o, dir, stdout, stderr)
}

// end prints an error if there is one, and returns the exit code for it.
func end(name string, err error, stderr io.Writer) (code int) {
	var misused *usage.Error
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exit.Done
	case errors.As(err, &misused):
		fmt.Fprintf(stderr, "%s: %v; try -h\n", name, err)
		return exit.Usage
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(stderr, "%s: interrupted; its processes and temporary files are gone\n", name)
		return exit.Interrupted
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	return exit.Failed
}

// Common are the options that all programs have.
type Common struct {
	Launches int
	JSON     string // a file; "": none
	Program  string // ddpbatch's path; "": build this tree's
	Below    string // where the directory for temporary files is created; "": the system's default
}

func (c Common) common() Common { return c }

// WriteJSON writes all results to the file of --json, if that is given.
func (c Common) WriteJSON(all any) error {
	if c.JSON == "" {
		return nil
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.WriteFile(c.JSON, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the samples to %s: %w", c.JSON, err)
	}
	return nil
}

// Flags parses the options of a program, which defines its own beside the common ones before calling Parse.
type Flags struct {
	*flag.FlagSet
	common *Common
	text   string
	quick  bool
	less   map[string]string // values of options with --quick
	later  []func() error    // parse options whose values are known only then
}

// NewFlags returns Flags with the text that -h prints before the options, and with what --quick changes beside 3 launches: in words, and as
// values of options.
func NewFlags(common *Common, text, quick string, less map[string]string) *Flags {
	f := &Flags{FlagSet: flag.NewFlagSet("", flag.ContinueOnError), common: common, text: text, less: map[string]string{"launches": "3"}}
	maps.Copy(f.less, less)
	f.SetOutput(io.Discard)
	f.IntVar(&common.Launches, "launches", 7, "of each side; fewer than 6 give no 95 % interval")
	f.BoolVar(&f.quick, "quick", false, "a first look: 3 launches"+quick+"; other given options take precedence")
	f.StringVar(&common.JSON, "json", "", "write all samples to `FILE`, too")
	return f
}

// TakeProgram defines the option --ddpbatch.
func (f *Flags) TakeProgram() {
	f.Func("ddpbatch", "measure `PROGRAM`, not this tree's", func(path string) error {
		path, err := filepath.Abs(path) // launches have their own working directories
		if err == nil {
			f.common.Program, err = exec.LookPath(path)
		}
		return err
	})
}

// Text defines an option that read parses.
func Text[T any](f *Flags, to *T, name, value, help string, read func(flag, text string) (T, error)) {
	text := f.String(name, value, help)
	f.later = append(f.later, func() (err error) {
		*to, err = read(name, *text)
		return err
	})
}

// Words defines a list of known words, or all. They may be written with _ or -, as other libraries do.
func (f *Flags) Words(to *[]string, name, value string, known []string, more string) {
	Text(f, to, name, value, "`LIST` of "+strings.Join(known, ", ")+more, func(_, list string) ([]string, error) {
		return words(name, list, known)
	})
}

// Peers defines the list of peers to run beside ddpbatch: known words, or none.
func (f *Flags) Peers(to *[]string, known []string) {
	Text(f, to, "peers", "all", "`LIST` of "+strings.Join(known, ", ")+", all, or none", func(name, list string) ([]string, error) {
		if list == "none" {
			return nil, nil
		}
		return words(name, list, known)
	})
}

// Numbers defines a list of numbers from low to high.
func (f *Flags) Numbers(to *[]int, name, value string, low, high int, help string) {
	Text(f, to, name, value, "`LIST` of "+help, func(_, list string) ([]int, error) { return numbers(name, list, low, high) })
}

// Parse parses the command line, or prints help. An error in it is a [usage.Error].
func (f *Flags) Parse(args []string, stderr io.Writer) error {
	err := f.FlagSet.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stderr, f.text)
		f.SetOutput(stderr)
		f.PrintDefaults()
		return err
	case err != nil:
		return usage.Errorf("%v", err)
	case f.NArg() > 0:
		return usage.Errorf("%q is not expected; every option has a name", f.Arg(0))
	}
	f.Visit(func(given *flag.Flag) { delete(f.less, given.Name) })
	for name, value := range f.less {
		if f.quick {
			_ = f.Set(name, value) // they are valid
		}
	}
	if n := f.common.Launches; n < 1 || n > 1000 {
		return usage.Errorf("-launches is %d; it must be 1 to 1000", n)
	}
	for _, read := range f.later {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

func words(flag, list string, known []string) ([]string, error) {
	if list == "all" {
		return known, nil
	}
	var out []string
	for word := range strings.SplitSeq(list, ",") {
		word = strings.NewReplacer("_", "", "-", "").Replace(strings.TrimSpace(word))
		if !slices.Contains(known, word) {
			return nil, usage.Errorf("-%s: %q is not one of %s", flag, word, strings.Join(known, ", "))
		}
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out, nil
}

func numbers(flag, list string, low, high int) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < low || n > high {
			return nil, usage.Errorf("-%s: %q is not a number from %d to %d", flag, word, low, high)
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out, nil
}
