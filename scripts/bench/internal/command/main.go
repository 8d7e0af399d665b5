package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
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
