package pmi2

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/internal/testkit"
)

// The test binary is also a task, which prints task 0's text three times.
func TestMain(m *testing.M) {
	if os.Getenv("PMI2_TEST_TASK") != "" {
		if err := task(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func task() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := Open(os.LookupEnv)
	if err != nil {
		return err
	}
	for round := range 3 {
		text, err := c.FromZero(ctx, fmt.Sprintf("round %d of task %d;=\n\x00\xff", round, c.Rank()))
		if err != nil {
			return err
		}
		fmt.Printf("%d/%d %q\n", c.Rank(), c.Size(), text)
	}
	long, err := c.FromZero(ctx, strings.Repeat("x", MaxText))
	if err != nil || len(long) != MaxText {
		return fmt.Errorf("a long text came back as %d bytes: %w", len(long), err)
	}
	return c.Close()
}

// TestSlurm runs 8 tasks on 4 nodes of the real cluster.
func TestSlurm(t *testing.T) {
	testkit.SlurmCluster(t)
	// the nodes share this machine's /tmp, but not its build cache
	program := filepath.Join(t.TempDir(), "task")
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // other tests also use the cluster
	defer cancel()
	run := func(mpi string) (string, error) {
		cmd := exec.CommandContext(ctx, "srun", "--mpi="+mpi, "-N4", "-n8", "--ntasks-per-node=2", "--kill-on-bad-exit=1", program)
		cmd.Env = append(os.Environ(), "PMI2_TEST_TASK=1")
		out, err := cmd.Output() // on standard error, srun may print that it waits for resources
		return string(out), err
	}
	out, err := run("pmi2")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var want []string
	for round := range 3 {
		for rank := range 8 {
			want = append(want, fmt.Sprintf("%d/8 %q", rank, fmt.Sprintf("round %d of task 0;=\n\x00\xff", round)))
		}
	}
	slices.Sort(lines)
	slices.Sort(want)
	if !slices.Equal(lines, want) {
		t.Errorf("tasks said\n%s", out)
	}
	if out, err := run("none"); err == nil || !strings.Contains(out, ErrNone.Error()) {
		t.Errorf("without PMI-2: %v\n%s", err, out)
	}
}

// environ returns a lookup of the variables that srun sets.
func environ(fd int, rank, size int) func(string) (string, bool) {
	vars := map[string]string{"PMI_FD": strconv.Itoa(fd), "PMI_RANK": strconv.Itoa(rank),
		"PMI_SIZE": strconv.Itoa(size), "PMI_JOBID": "12.0"}
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// pair returns a client of the given task and the other end of its socket.
func pair(t *testing.T, rank, size int) (*Client, net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(environ(fds[0], rank, size))
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[1]), "stepd")
	other, err := net.FileConn(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return c, other
}

// This stepd never answers, as if the other tasks never came to the fence.
func TestSilentStepdEndsWithTheContext(t *testing.T) {
	c, _ := pair(t, 1, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("too late")
	time.AfterFunc(20*time.Millisecond, func() { cancel(late) })
	if _, err := c.FromZero(ctx, ""); !errors.Is(err, late) {
		t.Errorf("error %v, want %v", err, late)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestOddAnswersOfStepdAreErrors plays a stepd that sends wrong messages.
func TestOddAnswersOfStepdAreErrors(t *testing.T) {
	const hello = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"
	message := func(s string) string { return fmt.Sprintf("%6d%s", len(s), s) }
	full := message("cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=-1;debugged=FALSE;pmiverbose=FALSE;")
	fence := message("cmd=kvs-fence-response;rc=0;")
	for name, tt := range map[string]struct{ says, want string }{
		"nothing":             {"", "closed the connection"},
		"another version":     {"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n", "does not speak PMI-2"},
		"a refusal":           {"cmd=response_to_init rc=14 pmi_version=2 pmi_subversion=0\n", "does not speak PMI-2"},
		"an endless line":     {strings.Repeat("x", 5000), "does not end"},
		"another task":        {hello + message("cmd=fullinit-response;rc=0;rank=0;size=2;"), "task 0 of 2"},
		"no length":           {hello + "abcdef", "announces a message"},
		"a huge length":       {hello + "999999", "announces a message"},
		"a negative length":   {hello + "    -1", "announces a message"},
		"cut short":           {hello + "    50cmd=full", "closed the connection"},
		"no words":            {hello + message("hello"), "no key=value"},
		"an open value":       {hello + message("cmd=fullinit-response;rc=0"), "ends within"},
		"twice":               {hello + message("cmd=a;cmd=b;"), "twice"},
		"another answer":      {hello + message("cmd=kvs-get-response;rc=0;"), "answered"},
		"a refused call":      {hello + full + message("cmd=kvs-fence-response;rc=3;errmsg=no;;pe;"), `code "3" "no;pe"`},
		"task 0 said nothing": {hello + full + fence + message("cmd=kvs-get-response;rc=0;found=FALSE;"), "does not have"},
		"no base64":           {hello + full + fence + message("cmd=kvs-get-response;rc=0;found=TRUE;value=!;"), "read the text of task 0"},
	} {
		t.Run(name, func(t *testing.T) {
			c, stepd := pair(t, 1, 2)
			var drained sync.WaitGroup
			drained.Go(func() { io.Copy(io.Discard, stepd) })
			go func() {
				io.WriteString(stepd, tt.says)
				stepd.(*net.UnixConn).CloseWrite()
			}()
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			_, err := c.FromZero(ctx, "")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			c.Close()
			drained.Wait()
		})
	}
}

func TestOpen(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null := int(file.Fd())
	for name, tt := range map[string]struct {
		lookup func(string) (string, bool)
		want   string
		none   bool
	}{
		"no PMI":       {func(string) (string, bool) { return "", false }, "does not offer PMI-2", true},
		"no socket":    {environ(null, 0, 1), "it is not a socket", true},
		"closed":       {environ(1<<20, 0, 1), "bad file descriptor", true},
		"standard out": {environ(1, 0, 1), "descriptor 1", false},
		"no such task": {environ(null, 2, 2), "task 2 of 2", false},
		"no task":      {environ(null, -1, 2), "task -1 of 2", false},
		"no rank": {func(n string) (string, bool) {
			if n == "PMI_FD" {
				return "5", true
			}
			return "", false
		}, "PMI_RANK", false},
	} {
		c, err := Open(tt.lookup)
		if err == nil || c != nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrNone) != tt.none {
			t.Errorf("%s: %v; want %q (none: %v)", name, err, tt.want, tt.none)
		}
	}
}

func TestTooLongATextIsRefused(t *testing.T) {
	c, _ := pair(t, 0, 1)
	if _, err := c.FromZero(t.Context(), strings.Repeat("x", MaxText+1)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
	c.Close()
}

// No message makes the parser panic, and formatting what it accepts gives a message that parses to the same fields.
func FuzzParse(f *testing.F) {
	f.Add("cmd=fullinit-response;rc=0;rank=3;size=4;")
	f.Add("a=b;;c;d=;")
	f.Add("=;;;")
	f.Fuzz(func(t *testing.T, message string) {
		fields, err := parse(message)
		if err != nil {
			return
		}
		var again strings.Builder
		for key, value := range fields {
			again.WriteString(key + "=" + strings.ReplaceAll(value, ";", ";;") + ";")
		}
		back, err := parse(again.String())
		if err != nil || len(back) != len(fields) {
			t.Fatalf("%q reads as %q, and that as %q: %v", message, fields, back, err)
		}
		for key, value := range fields {
			if back[key] != value {
				t.Fatalf("%q: %q is %q, and then %q", message, key, value, back[key])
			}
		}
	})
}

// No stream from a stepd makes the client panic or read forever.
func FuzzWire(f *testing.F) {
	f.Add([]byte("cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n    10cmd=a;rc=0"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		defer ours.Close()
		defer theirs.Close()
		w := wire{ours, bufio.NewReader(strings.NewReader(string(stream)))}
		if w.greet() != nil {
			return
		}
		for {
			if _, err := w.call("kvs-fence"); err != nil {
				return
			}
		}
	})
}
