package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// roleVariable makes this test's binary play a role in a test.
const roleVariable = "PROC_TEST_ROLE"

func init() { runtime.LockOSThread() } // stays on the first thread, for the role that ends it

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == GuardCommand {
		_, err := ServeGuard(context.Background(), os.Args[2:], os.Stdin)
		leave(err)
	}
	if role := os.Getenv(roleVariable); role != "" {
		leave(play(role, os.Args[1:]))
	}
	runtime.UnlockOSThread()
	goleak.VerifyTestMain(m)
}

func leave(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// play does everything that a process with a role does.
func play(role string, args []string) error {
	switch role {
	case "agent": // agent COOKIE WORDS: starts the words as a worker with the cookie, with a guard, and waits
		guard, err := StartGuard(slog.New(slog.NewTextHandler(os.Stdout, nil)))
		if err != nil {
			return err
		}
		if err := guard.Sweep(args[0]); err != nil {
			return err
		}
		cmd := exec.Command(args[1], args[2:]...)
		cmd.Stdout = os.Stdout
		cmd.Env = append(os.Environ(), roleVariable+"=", CookieVariable+"="+args[0])
		p, err := guard.Start(nil, cmd)
		if err != nil {
			return err
		}
		fmt.Println("guard", guard.process.process.pid)
		<-p.Done()
		return nil
	case "hide": // overwrites its environment, as setproctitle does
		if err := hide(); err != nil {
			return err
		}
		fmt.Println("hidden", os.Getpid())
		time.Sleep(time.Hour)
	case "headless": // ends its first thread while another one goes on
		go func() {
			fmt.Println("headless", os.Getpid())
			time.Sleep(time.Hour)
		}()
		unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	case "sweep": // sweeps its own cookie, and prints the counts
		swept, err := sweepCookie(context.Background(), os.Getenv(CookieVariable))
		fmt.Println(len(swept.Killed), len(swept.Left))
		return err
	case "group": // group NUMBER DIED
		group, _ := strconv.Atoi(args[0])
		died, _ := strconv.ParseUint(args[1], 10, 64)
		swept, err := sweepGroup(context.Background(), group, died, targets{})
		fmt.Println(len(swept.Killed), len(swept.Left))
		return err
	case "sweeper": // sweeper COOKIE: sweeps as another user
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		swept, err := sweepCookie(ctx, args[0])
		fmt.Println(len(swept.Killed), len(swept.Left), err)
		return nil
	case "monitored": // adopts the program that it gets, and sweeps once the program has printed three lines
		reaper, err := Subreaper()
		if err != nil {
			return err
		}
		defer reaper.Close()
		pipe, out, err := os.Pipe()
		if err != nil {
			return err
		}
		cmd := exec.Command("sh", "-c", `setsid "$0" "$1" &`, args[0], args[1])
		cmd.Stdout = out
		if err := cmd.Run(); err != nil {
			return err
		}
		said := bufio.NewScanner(pipe)
		for range 3 {
			said.Scan()
			fmt.Println(said.Text())
		}
		swept, err := SweepAdopted(context.Background())
		for _, v := range swept.Killed {
			fmt.Println("killed", v.PID)
		}
		return err
	case "limits":
		if len(args) == 0 {
			if _, err := RaiseLimits(); err != nil {
				return err
			}
		}
		out, err := exec.Command("/bin/sh", "-c", "ulimit -Sn; ulimit -Hn; ulimit -Ss").Output()
		os.Stdout.Write(out)
		return err
	case "memory": // runs the words between two snapshots
		before, err := ReadMemory(os.DirFS("/"))
		if err != nil {
			return err
		}
		_ = exec.Command(args[0], args[1:]...).Run()
		after, err := ReadMemory(os.DirFS("/"))
		o := after.Since(before)
		fmt.Println(o.Evidence, o.Limit, o)
		return err
	}
	return fmt.Errorf("there is no part %q", role)
}

// hide overwrites the memory that holds this process's environment. /proc/self/stat gives its bounds (proc(5), env_start and env_end).
func hide() error {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var bounds [2]int64
	for i := range bounds {
		if bounds[i], err = strconv.ParseInt(fields[47+i], 10, 64); err != nil {
			return err
		}
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	_, err = memory.WriteAt([]byte(strings.Repeat("t", int(bounds[1]-bounds[0]))), bounds[0])
	return err
}

// as returns a command of this test's binary in a role, with a cookie.
func as(role, cookie string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, CookieVariable+"="+cookie)
	return cmd
}

// shell returns a command for a shell script that has a cookie, and this test's binary as $0.
func shell(cookie, script string, args ...string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, os.Args[0]}, args...)...)
	cmd.Env = append(os.Environ(), CookieVariable+"="+cookie)
	return cmd
}

// newCookie returns a cookie for one test, and kills the processes that have it when the test ends.
func newCookie(t *testing.T) string {
	t.Helper()
	cookie := NewCookie()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		if swept, err := sweepCookie(ctx, cookie); err != nil || len(swept.Left) > 0 {
			t.Errorf("the test leaves %v behind: %v", swept.Left, err)
		}
	})
	return cookie
}

// marked returns the live processes that have a cookie, by a search that does not use this package.
func marked(cookie string) (found []int) {
	ids, _ := processIDs()
	for _, pid := range ids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if slices.Contains(strings.Split(string(text), "\x00"), CookieVariable+"="+cookie) && alive(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// startTest starts a command whose standard output the test reads. The command ends with the test.
func startTest(t *testing.T, cmd *exec.Cmd, start func(*exec.Cmd) (*Process, error)) (*Process, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	p, err := start(cmd)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Signal(unix.SIGKILL)
		<-p.Done()
		r.Close()
	})
	return p, bufio.NewReader(r)
}

// pidAfter reads lines until one begins with word, and returns the process id after it.
func pidAfter(t *testing.T, lines *bufio.Reader, word string) int {
	t.Helper()
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("waiting for %q: %v (%q)", word, err, line)
		}
		var pid int
		if n, _ := fmt.Sscanf(line, word+" %d", &pid); n == 1 {
			return pid
		}
	}
}

// executes waits until processes run a program. Before that they have the environment of the process that forked them.
func executes(t *testing.T, program string, pids ...int) {
	t.Helper()
	testkit.Eventually(t, "they execute "+program, func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { s, _ := readStat(pid); return s.name != program })
	})
}

func gone(t *testing.T, what string, pids ...int) {
	t.Helper()
	testkit.Eventually(t, what, func() bool { return !slices.ContainsFunc(pids, alive) })
}

// tail returns everything that a command of the test still writes.
func tail(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
