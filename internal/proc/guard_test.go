package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// killAgent runs script as the worker of an agent with a guard. It waits until the words have come, each with a process id, and kills the
// agent. Then it waits until those processes and the guard are gone.
func killAgent(t *testing.T, cookie, script string, words ...string) {
	t.Helper()
	agent, lines := startAgent(t, cookie, script)
	pids := pidsAfter(t, lines, words...)
	if err := unix.Kill(agent.Pid(), unix.SIGKILL); err != nil { // only the agent
		t.Fatal(err)
	}
	wait(t, agent)
	for word, pid := range pids {
		gone(t, fmt.Sprintf("%s, process %d, is gone", word, pid), pid)
	}
	// this includes any shell between two of those
	testkit.Eventually(t, "no process of the run is left", func() bool { return len(marked(cookie)) == 0 })
	closed(t, lines)
}

// closed waits until all processes that write the lines have ended, and returns what they still wrote. Only these processes hold the pipe.
func closed(t *testing.T, lines *bufio.Reader) (text string) {
	t.Helper()
	testkit.Within(t, testkit.Patience, func() { text = tail(t, lines) })
	return text
}

// startAgent starts an agent with a guard. The agent's worker is a script that has this test's binary as $0, and a file of its own as $1.
func startAgent(t *testing.T, cookie, script string) (*Process, *bufio.Reader) {
	t.Helper()
	return startTest(t, as("agent", NewCookie(), cookie, "/bin/sh", "-c", script, os.Args[0], filepath.Join(t.TempDir(), "script")), Start)
}

// pidsAfter reads lines, each a word and a process id, until all words have come, in any order.
func pidsAfter(t *testing.T, lines *bufio.Reader, words ...string) map[string]int {
	t.Helper()
	pids := map[string]int{}
	for slices.ContainsFunc(words, func(word string) bool { return pids[word] == 0 }) {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the agent ended early: %v", err)
		}
		var word string
		var pid int
		if _, err := fmt.Sscan(line, &word, &pid); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		pids[word] = pid
	}
	return pids
}

func TestGuardKillsWhatTheAgentStarted(t *testing.T) {
	killAgent(t, newCookie(t), "echo leader $$; "+scattered, "leader", "member", "session", "daemon")
}

// The guard finds a process in its group even if the process's environment no longer shows the cookie.
func TestGuardKillsTheGroup(t *testing.T) {
	killAgent(t, newCookie(t), "echo leader $$; "+roleVariable+"=hide $0 & wait", "leader", "hidden")
}

// The agent of an inner run is killed because of its cookie. Its guard then kills the processes that have the inner run's cookie.
func TestGuardsInEachOther(t *testing.T) {
	inner := newCookie(t)
	killAgent(t, newCookie(t), "echo leader $$; "+roleVariable+"=agent setsid $0 "+inner+
		` /bin/sh -c 'setsid sleep 1000 & echo inner $!; wait' & wait`,
		"leader", "inner")
	testkit.Eventually(t, "no process of the inner run is left", func() bool { return len(marked(inner)) == 0 })
}

// The agent of an inner run is killed, and the outer run sweeps before the inner guard has woken. The guard is an orphan by then. The sweep
// spares it, and it does its work.
func TestSweepSparesTheGuardOfARunWithin(t *testing.T) {
	reaper, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Close()
	outer, inner := newCookie(t), newCookie(t)
	agent, lines := startTest(t, as("agent", outer, inner, "/bin/sh", "-c", "setsid sleep 1000 & echo daemon $!; wait"), Start)
	pids := pidsAfter(t, lines, "guard", "daemon")
	guard, daemon := pids["guard"], pids["daemon"]
	executes(t, "sleep", daemon)
	if err := unix.Kill(guard, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(guard, unix.SIGCONT)
	if err := unix.Kill(agent.Pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait(t, agent)
	testkit.Eventually(t, "the guard is an orphan of ours", func() bool { s, _ := readStat(guard); return s.parent == unix.Getpid() })
	swept(t, SweepOrphans, outer)
	if !alive(guard) {
		t.Fatal("the run around it killed the guard")
	}
	if err := unix.Kill(guard, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	gone(t, "what the inner run has started is gone, and its guard", daemon, guard)
}

// If a guard was killed, the log says so, and Sweep returns an error.
func TestGuardIsMissed(t *testing.T) {
	var log bytes.Buffer
	guard, err := StartGuard(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer guard.End()
	guard.mu.Lock()
	pid := guard.process.process.pid
	guard.mu.Unlock()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-guard.done
	if !strings.Contains(log.String(), "the guard process has ended") {
		t.Errorf("the log says %q", log.String())
	}
	if err := guard.Sweep(NewCookie()); err == nil {
		t.Error("a guard that is gone takes orders")
	}
}

// Signals that are sent to all processes do not end a guard early, and End ends it without killing anything.
func TestGuardEnds(t *testing.T) {
	guard, err := StartGuard(nil)
	if err != nil {
		t.Fatal(err)
	}
	cookie := newCookie(t)
	if err := guard.Sweep(cookie); err != nil {
		t.Fatal(err)
	}
	pid := guard.process.process.pid
	for sig := unix.Signal(1); sig < 32; sig++ {
		if sig != unix.SIGKILL && sig != unix.SIGSTOP {
			if err := unix.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	p, lines := startTest(t, shell(cookie, `echo self $$; sleep 1000`),
		func(cmd *exec.Cmd) (*Process, error) { return guard.Start(nil, cmd) })
	pidAfter(t, lines, "self")
	if !alive(pid) {
		t.Error("a signal ended the guard")
	}
	guard.End()
	if alive(pid) {
		t.Error("the guard is there after its end")
	}
	if err := guard.Sweep(cookie); err == nil {
		t.Error("a guard that is gone takes orders")
	}
	if p.Signal(unix.Signal(0)); !alive(p.Pid()) {
		t.Error("the end of the guard ended a process")
	}
}

func TestNoGuard(t *testing.T) {
	var guard *Guard
	p, err := guard.Start(nil, exec.Command("true"))
	if err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	if err := guard.Sweep(NewCookie()); err != nil {
		t.Error(err)
	}
	guard.End()
}

// If the machine has no shell, this program waits itself.
func TestServeGuardWaitsForTheEnd(t *testing.T) {
	cookie := newCookie(t)
	victim, lines := startTest(t, shell(cookie, "echo self $$; sleep 1000"), Start)
	pidAfter(t, lines, "self")
	guard := exec.Command(os.Args[0], GuardCommand)
	orders, err := guard.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(orders, "=%s\n", cookie)
	select {
	case <-victim.Done():
		t.Error("it killed before the end of its orders")
	default:
	}
	orders.Close()
	wait(t, victim)
	if err := guard.Wait(); err != nil {
		t.Error(err)
	}
}

func TestFollowOrders(t *testing.T) {
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 32)
	cookies, groups, err := readOrders([]string{"=" + a, "+10"}, strings.NewReader("+20\n~10\n="+b+"\n+30"))
	if err != nil || len(cookies) != 2 || len(groups) != 2 || !groups[20] || !groups[30] {
		t.Errorf("%v %v %v", cookies, groups, err)
	}
	long := strings.Repeat("=", 10000)
	for _, bad := range []string{"+", "=", "+1", "+0", "+-5", "~x", "-10", "+99999999999", "*10", "=abc", "", long, "=" + a + a} {
		cookies, groups, err := readOrders(nil, strings.NewReader(bad+"\n+20\n"))
		if err == nil || len(cookies) != 0 || len(groups) != 1 {
			t.Errorf("%.40q: %v %v %v; want an error, and the order after it followed", bad, cookies, groups, err)
		}
	}
	// a read error does not mean that the agent ended: it may still run
	if _, err := ServeGuard(t.Context(), []string{"+" + fmt.Sprint(unix.Getpgrp())},
		iotest.ErrReader(errors.New("broken"))); !errors.Is(err, errOrders) {
		t.Errorf("error %v", err)
	}
}

// If the number of a group was reused, the new group is left alone: no member existed when the agent died, and none has the cookie.
func TestSweepGroupKnowsItsGroup(t *testing.T) {
	cookie := newCookie(t)
	// not a Process, which kills its group when the leader ends, and with it any process that has joined
	leader := shell(cookie, "sleep 1000")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	pid := leader.Process.Pid
	defer leader.Process.Kill()
	s, err := readStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	sweep := func(died uint64) string {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], fmt.Sprint(pid), fmt.Sprint(died))
		cmd.Env = append(os.Environ(), roleVariable+"=group")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(bytes.TrimSpace(out))
	}
	if got := sweep(s.start - 1); got != "0 0" || !alive(pid) {
		t.Errorf("of a group that is younger, killed and left: %s; alive: %v", got, alive(pid))
	}
	if got := sweep(s.start); got == "0 0" {
		t.Error("none of an older group was killed")
	}
	_ = leader.Wait()
	if got := sweep(s.start); got != "0 0" {
		t.Errorf("of a group that is gone, killed and left: %s", got)
	}
}

// BenchmarkStartGuard measures what an agent does before it starts its first worker.
func BenchmarkStartGuard(b *testing.B) {
	for b.Loop() {
		guard, err := StartGuard(nil)
		if err != nil {
			b.Fatal(err)
		}
		guard.End()
	}
}
