package data

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// helperVariable is the environment variable that makes the test binary run one of the helpers with its arguments.
const helperVariable = "DDPBATCH_DATA_TEST_HELPER"

var helpers = map[string]func(args []string) error{
	"hold": hold, "once": prepareFile, "tree": openTreeOf,
}

func TestMain(m *testing.M) {
	if help := helpers[os.Getenv(helperVariable)]; help != nil {
		if err := help(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// hold takes the lock at args[0], prints a line, and keeps the lock until its standard input ends.
func hold(args []string) error {
	return onceAt(context.Background(), args[0], never, func() error {
		fmt.Println("held")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
}

func never() (bool, error) { return false, nil }

// prepareFile prepares the file args[0]. Each preparation adds a line to the file.
func prepareFile(args []string) error {
	ready := func() (bool, error) {
		_, err := os.Stat(args[0])
		return err == nil, nil
	}
	return onceAt(context.Background(), args[0]+".lock", ready, func() error {
		f, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(f, "prepared")
		return errors.Join(err, f.Close())
	})
}

// openTreeOf opens the tree args[1] with the cache args[0], and prints its digest.
func openTreeOf(args []string) error {
	set, err := OpenText(context.Background(), &Cache{Dir: args[0]}, args[1], 64)
	if err != nil {
		return err
	}
	fmt.Printf("%x\n", digestOf(set))
	return nil
}

// helper is a process that a test has started.
type helper struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.Closer
	out  *bufio.Reader
	errs strings.Builder
}

func startHelper(t testing.TB, name string, args ...string) *helper {
	t.Helper()
	h := &helper{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0], args...)}
	h.cmd.Env = append(os.Environ(), helperVariable+"="+name)
	h.cmd.Stderr = &h.errs
	in, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.in, h.out = in, bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if h.cmd.ProcessState == nil {
			h.kill()
		}
	})
	return h
}

// line returns the next line that the helper prints.
func (h *helper) line() string {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("a helper ended: %v: %s", h.cmd.Wait(), h.errs.String())
	}
	return strings.TrimSpace(line)
}

// wait waits for the helper to end, and reports a failure as an error of the test.
func (h *helper) wait() {
	h.t.Helper()
	if err := h.cmd.Wait(); err != nil {
		h.t.Errorf("a helper: %v: %s", err, h.errs.String())
	}
}

func (h *helper) kill() {
	h.cmd.Process.Kill()
	h.cmd.Wait() // returns that the process was killed
}
