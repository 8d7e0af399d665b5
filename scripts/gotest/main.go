// Command gotest runs go test, prints what go test prints, and may run a failed test once more, alone.
//
//	go run ./scripts/gotest [-flag=value ...] packages
//
// Flags are passed to go test unchanged, in the form -name=value. If DDPBATCH_FLAKY is set to the name of a file, a failed test is run once
// more, and passes if it passes then; "FLAKY: name" and the first output are printed, and the name is added to the file. All calls with the
// same file forgive at most three tests together. If several calls run at once, a second run waits until all others have ended. .ci/run
// sets the variable; a user who runs ./scripts/test sees each failure as it is. outcome.again decides which failures are never run again.
//
// If DDPBATCH_TALLY is set to the name of a file, each call adds to it how many tests ran and were skipped, why, and which took longest.
// "gotest -tally FILE" prints the sum over all calls; the last line has the number of tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "-tally" {
		if err := printTally(os.Args[2], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "gotest:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:], files{flaky: os.Getenv("DDPBATCH_FLAKY"), tally: os.Getenv("DDPBATCH_TALLY")}, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// files are shared by several calls; "": none.
type files struct {
	flaky string // the names of the tests that failed once; without it no test is run a second time
	tally string // how many tests ran, one line per call
}

// run runs go test with args, prints the outcome to w, and reports whether all tests passed, the first or the second time.
func run(ctx context.Context, args []string, shared files, w io.Writer) (bool, error) {
	others, err := join(ctx, shared.flaky)
	if err != nil {
		return false, fmt.Errorf("lock the file that calls share: %w", err)
	}
	defer others.Close()
	first, err := goTest(ctx, args, w)
	if err != nil {
		return false, err
	}
	if shared.tally != "" {
		if err := first.tally.keep(shared.tally); err != nil {
			return false, fmt.Errorf("record how many tests ran: %w", err)
		}
	}
	flaky := shared.flaky
	if first.passed || flaky == "" {
		return first.passed, nil
	}
	security, err := securityTests(ctx)
	if err != nil {
		return false, fmt.Errorf("find the tests of security, which are never run again: %w", err)
	}
	again, why := first.again(security)
	if why != "" {
		fmt.Fprintf(w, "no second run: %s\n", why)
		return false, nil
	}
	if err := alone(ctx, others, w); err != nil {
		return false, fmt.Errorf("wait until other calls have ended: %w", err)
	}
	forgiven, err := readLines(flaky)
	if err != nil {
		return false, fmt.Errorf("read which tests failed before: %w", err)
	}
	if len(forgiven)+len(again) > maxRetried {
		fmt.Fprintf(w, "no second run: %d tests failed, and %d failed before; at most %d of a run are run again\n",
			len(again), len(forgiven), maxRetried)
		return false, nil
	}
	for _, t := range again {
		fmt.Fprintf(w, "\nFLAKY? %s is run once more, alone\n", t)
		second, err := goTest(ctx, onlyOne(args, t), w)
		if err != nil {
			return false, err
		}
		if !second.passed || second.ended[t] != "pass" {
			fmt.Fprintf(w, "failed twice: %s\n", t)
			return false, nil
		}
		fmt.Fprintf(w, "FLAKY: %s; its first output:\n%s", t, first.said[t])
		if err := addLine(flaky, t.String()); err != nil {
			return false, fmt.Errorf("note a test that failed once: %w", err)
		}
	}
	return true, nil
}

// goTest runs go test once, prints the outcome to w, and returns it. An error means that the outcome is not known.
func goTest(ctx context.Context, args []string, w io.Writer) (outcome, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the go command does not pass a TERM on to its test programs
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, fmt.Errorf("read what go test prints: %w", err)
	}
	cmd.Stderr = cmd.Stdout // one pipe, so that only read writes to w
	if err := cmd.Start(); err != nil {
		return outcome{}, fmt.Errorf("start go test: %w", err)
	}
	o, err := read(out, w)
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return outcome{}, fmt.Errorf("read what go test prints: %w", err)
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return outcome{}, fmt.Errorf("run go test: %w", err)
	} else if err != nil {
		o.passed = false
	}
	return o, ctx.Err()
}

// join opens the file that calls share, and takes a shared lock on it. For an empty path it returns nil, which may be closed.
func join(ctx context.Context, path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(ctx, f, syscall.LOCK_SH, func() {}); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// alone waits until no other call has locked the file, and keeps others from it.
func alone(ctx context.Context, f *os.File, w io.Writer) error {
	return lock(ctx, f, syscall.LOCK_EX, func() { fmt.Fprintln(w, "failed tests are run once more when other tests have ended") })
}

// lock locks f, shared or exclusively. It calls waits once if it has to wait. While it waits f is not locked (flock(2)), so that one of two
// calls that want an exclusive lock gets it.
func lock(ctx context.Context, f *os.File, how int, waits func()) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err != syscall.EWOULDBLOCK {
			return err
		}
		if first {
			waits()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' }), err
}

func addLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// maxRetried is how many failed tests may be run again in one run of .ci/run.
const maxRetried = 3

// onlyOne returns the arguments of go test that run only t, otherwise as before.
func onlyOne(args []string, t test) []string {
	var one []string
	for _, a := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if strings.HasPrefix(a, "-") && name != "run" && name != "skip" && name != "count" {
			one = append(one, a)
		}
	}
	parts := strings.Split(t.name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return append(one, "-run="+strings.Join(parts, "/"), "-count=1", t.pkg)
}
