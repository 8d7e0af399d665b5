package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// swept sweeps, and fails the test if anything is left.
func swept(t *testing.T, sweep func(context.Context, string) (Swept, error), cookie string) Swept {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	s, err := sweep(ctx, cookie)
	if err != nil || len(s.Left) > 0 {
		t.Errorf("left: %v, error: %v", s.Left, err)
	}
	if left := marked(cookie); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	return s
}

func (s Swept) has(pid int) bool {
	return slices.ContainsFunc(s.Killed, func(v Victim) bool { return v.PID == pid })
}

// scattered starts a child in the group, one in its own session, and a daemon whose parent and grandparent have ended.
const scattered = `sleep 1000 & echo member $!
setsid sleep 1000 & echo session $!
sh -c 'setsid sh -c "sleep 1000 & echo daemon \$!"'
wait`

func TestSweepFindsProcessesThatLeft(t *testing.T) {
	cookie := newCookie(t)
	p, lines := startTest(t, shell(cookie, scattered), Start)
	member, session, daemon := pidAfter(t, lines, "member"), pidAfter(t, lines, "session"), pidAfter(t, lines, "daemon")
	executes(t, "sleep", member, session, daemon)
	p.Signal(unix.SIGTERM)
	wait(t, p)
	gone(t, "the group ends with its leader", member)
	if !alive(session) || !alive(daemon) {
		t.Fatal("nobody left the group: there is nothing to find")
	}
	s := swept(t, sweepCookie, cookie)
	for _, pid := range []int{session, daemon} {
		if !s.has(pid) {
			t.Errorf("%d is not told among %v", pid, s.Killed)
		}
	}
}

func TestSweepSparesOthers(t *testing.T) {
	cookie, other := newCookie(t), newCookie(t)
	// a run within the run has its own cookie; a longer value and another variable do not count as cookies of this run
	_, lines := startTest(t, shell(cookie, `
		`+CookieVariable+`=$1 setsid sleep 1000 & echo nested $!
		`+CookieVariable+`=${1}0 X`+CookieVariable+`=$2 setsid sleep 1000 & echo longer $!
		setsid sleep 1000 & echo own $!; wait`, other, cookie), Start)
	nested, longer, own := pidAfter(t, lines, "nested"), pidAfter(t, lines, "longer"), pidAfter(t, lines, "own")
	executes(t, "sleep", nested, longer, own)
	t.Cleanup(func() { unix.Kill(longer, unix.SIGKILL) }) // this process is not waited for: its parent has ended, and init waits for it
	swept(t, sweepCookie, cookie)
	if alive(own) || !alive(nested) || !alive(longer) {
		t.Errorf("alive: own %v, nested %v, longer %v", alive(own), alive(nested), alive(longer))
	}
	swept(t, sweepCookie, other)
	if alive(nested) {
		t.Error("the nested run's process is alive")
	}
}

// A process that sweeps its own cookie ends neither itself nor its ancestors.
func TestSweepSparesTheSweeper(t *testing.T) {
	cookie := newCookie(t)
	p, lines := startTest(t, shell(cookie, "sleep 1000 & "+roleVariable+"=sweep $0; echo code $?"), Start)
	wait(t, p)
	if got := tail(t, lines); got != "1 0\ncode 0\n" {
		t.Errorf("it said %q; want one killed, none left, and its parent to go on", got)
	}
}

// If processes start others while they are swept, none of them are left.
func TestSweepOutrunsForks(t *testing.T) {
	for name, script := range map[string]string{
		"many": `i=0; while [ $i -lt 300 ]; do setsid sleep 1000 & i=$((i+1)); [ $i = 20 ] && echo begun 0; done; wait`,
		"tree": `cat >"$1" <<-'END'
			[ $1 -gt 0 ] || exec sleep 1000
			setsid sh "$0" $(($1-1)) & setsid sh "$0" $(($1-1)) & wait
			END
			echo begun 0; sh "$1" 7`,
		"hop": `cat >"$1" <<-'END'
			[ $1 -gt 0 ] || exec sleep 1000
			[ $1 = 900 ] && echo begun 0
			setsid sh "$0" $(($1-1)) &
			END
			for i in 1 2 3 4 5 6; do setsid sh "$1" 1000 & done; wait; sleep 1000`, // each ends when it has started the next one
	} {
		t.Run(name, func(t *testing.T) {
			cookie := newCookie(t)
			_, lines := startTest(t, shell(cookie, script, filepath.Join(t.TempDir(), "script")), Start)
			pidAfter(t, lines, "begun")
			if s := swept(t, sweepCookie, cookie); len(s.Killed) == 0 {
				t.Error("nobody was found")
			}
		})
	}
}

func TestSweepFindsWhoseFirstThreadEnded(t *testing.T) {
	cookie := newCookie(t)
	_, lines := startTest(t, as("headless", cookie), Start)
	pid := pidAfter(t, lines, "headless")
	testkit.Eventually(t, "the first thread has ended", func() bool {
		s, err := readStat(pid)
		return err == nil && s.state == 'Z' && s.threads > 1
	})
	swept(t, sweepCookie, cookie)
	gone(t, "it is killed", pid)
}

// The sweep also looks at numbers that may be those of threads. It does not take a thread for a process, and does not look at it again.
func TestSweepKnowsThreads(t *testing.T) {
	tid, stop := make(chan int), make(chan struct{})
	defer close(stop)
	for range 2 { // one of them may be the first thread, which has the number of the process
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tid <- unix.Gettid()
			<-stop
		}()
	}
	for range 2 {
		id := <-tid
		if id == unix.Getpid() {
			continue
		}
		s := newSweeper(targets{others: func(p stat, _ environ) bool { return p.pid == id }})
		killed, done := s.examine(id)
		s.env.close()
		if killed != nil || !done {
			t.Errorf("thread %d of this process: killed %v, done %v", id, killed, done)
		}
	}
}

// What a process of another user does must not make it look as if a run had not ended.
func TestSweepPassesOverOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can sweep as another user")
	}
	cookie := newCookie(t)
	p, lines := startTest(t, shell(cookie, "echo begun $$; exec sleep 1000"), Start)
	pid := pidAfter(t, lines, "begun")
	executes(t, "sleep", pid)
	out, err := as("sweeper", NewCookie(), cookie).Output()
	if err != nil || string(out) != "0 0 <nil>\n" {
		t.Errorf("killed, left and error of a sweep by another user: %q (%v)", out, err)
	}
	if !alive(pid) {
		t.Error("another user's process was killed")
	}
	if s := swept(t, sweepCookie, cookie); !s.has(pid) { // the user's own sweep
		t.Errorf("%d is not told among %v", pid, s.Killed)
	}
	wait(t, p)
}

// If a look may have missed a process each time, the sweep reports it.
func TestSweepReportsThatItIsNotSure(t *testing.T) {
	s := newSweeper(targetsOf(newCookie(t)))
	s.last = func() (int, bool) { return 0, false } // as without /proc/loadavg
	if _, err := s.run(t.Context()); err == nil || !strings.Contains(err.Error(), "missed") {
		t.Errorf("the error is %v", err)
	}
}

// In execve(2), a process shows no environment for a moment. The sweep distinguishes it from a process without an environment.
func TestSweepKnowsExecve(t *testing.T) {
	again := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(again, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, _ := startTest(t, shell(newCookie(t), `exec "$1"`, again), Start)
	executes(t, "again", p.Pid())
	chunk := make([]byte, environChunk)
	for seen, end := 0, time.Now().Add(testkit.Patience); seen < 100; {
		if time.Now().After(end) {
			t.Fatalf("it was seen in execve %d times, want 100", seen)
		}
		before, err := readStat(p.Pid())
		if err != nil {
			t.Fatal(err)
		}
		env := environOf(before, CookieVariable, chunk)
		if env.err != nil || !env.empty {
			continue
		}
		seen++
		if !inExecve(before) && environOf(before, CookieVariable, chunk).empty {
			t.Fatalf("it is said to have no environment: %+v", before)
		}
	}
	_ = p.Signal(unix.SIGKILL)
	wait(t, p)

	cmd := exec.Command("/bin/sleep", "1000")
	cmd.Env = []string{}
	p, _ = startTest(t, cmd, Start)
	executes(t, "sleep", p.Pid())
	testkit.Eventually(t, "it has come out of execve", func() bool { s, _ := readStat(p.Pid()); return !inExecve(s) })
	_ = p.Signal(unix.SIGKILL)
	wait(t, p)
}

// A stopped process is killed as well.
func TestSweepKillsTheStopped(t *testing.T) {
	cookie := newCookie(t)
	p, lines := startTest(t, shell(cookie, `echo self $$; kill -STOP $$`), Start)
	pid := pidAfter(t, lines, "self")
	testkit.Eventually(t, "it is stopped", func() bool { s, _ := readStat(pid); return s.state == 'T' })
	swept(t, sweepCookie, cookie)
	wait(t, p)
}

func TestSweepRefusesBadMarks(t *testing.T) {
	for _, mark := range []string{"", "NAME", "NAME=", "=value", "NAME=" + strings.Repeat("x", 33)} {
		if swept, err := SweepMarked(t.Context(), mark); err == nil || len(swept.Killed)+len(swept.Left) > 0 {
			t.Errorf("%q: %+v, %v", mark, swept, err)
		}
	}
}

func TestSweepRefusesBadCookies(t *testing.T) {
	for _, cookie := range []string{"", "00", strings.Repeat("0", 31), strings.Repeat("0", 33), strings.Repeat("G", 32),
		strings.Repeat("A", 32)} {
		if _, err := sweepCookie(t.Context(), cookie); err == nil {
			t.Errorf("%q was taken for a cookie", cookie)
		}
		if _, err := SweepOrphans(t.Context(), cookie); err == nil {
			t.Errorf("%q was taken for a cookie", cookie)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sweepCookie(ctx, NewCookie()); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody looked, and the error is %v", err)
	}
}

// A process that overwrote its environment and left its group is found as an orphan.
func TestSweepOrphansFindsTheHidden(t *testing.T) {
	reaper, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Close()
	cookie := newCookie(t)

	bystander := exec.Command("sleep", "1000") // a process that os/exec started, in this process's group
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer bystander.Wait()
	defer bystander.Process.Kill()
	worker, _ := startTest(t, exec.Command("sleep", "1000"), Start)

	p, lines := startTest(t, shell(cookie, roleVariable+`=hide setsid $0 & wait`), Start)
	hidden := pidAfter(t, lines, "hidden")
	if slices.Contains(marked(cookie), hidden) {
		t.Fatal("its environment still shows its cookie: there is nothing to find")
	}
	p.Signal(unix.SIGTERM) // ends the shell; the other process has left its group
	wait(t, p)
	testkit.Eventually(t, "the orphan is ours", func() bool { s, _ := readStat(hidden); return s.parent == unix.Getpid() })
	s := swept(t, SweepOrphans, cookie)
	if !s.has(hidden) {
		t.Errorf("the hidden one, %d, is not told among %v", hidden, s.Killed)
	}
	gone(t, "the hidden one is killed", hidden)
	if !alive(bystander.Process.Pid) || !alive(worker.Pid()) {
		t.Errorf("alive: a child of os/exec %v, a Process %v", alive(bystander.Process.Pid), alive(worker.Pid()))
	}
}

// A killed process may leave an orphan when it ends, while the sweep looks for others. The orphan is found as well.
func TestSweepOrphansFindsWhatTheDyingLeave(t *testing.T) {
	reaper, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Close()
	p, lines := startTest(t, shell(newCookie(t), // two processes without a cookie, one the child of the other
		`env -i setsid sh -c 'sleep 1000 & echo child $!; echo parent $$; wait' & wait`), Start)
	child, parent := pidAfter(t, lines, "child"), pidAfter(t, lines, "parent")
	p.Signal(unix.SIGTERM)
	wait(t, p)
	executes(t, "sleep", child)
	testkit.Eventually(t, "the parent is ours", func() bool { s, _ := readStat(parent); return s.parent == unix.Getpid() })

	is, err := readStat(parent)
	if err != nil {
		t.Fatal(err)
	}
	dying, ok := openHandle(is, func(stat) bool { return true })
	if !ok {
		t.Fatal("the parent has ended")
	}
	s := newSweeper(orphansOf(newCookie(t)))
	s.tried[is.pidStart()] = dying // as if it had been killed and were slow to end
	asked := 0
	s.last = func() (int, bool) {
		if asked++; asked == 2 { // at the end of the first look
			if err := dying.signal(unix.SIGKILL); err != nil {
				t.Error(err)
			}
			gone(t, "the parent is killed", parent)
		}
		return lastPID()
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if r, err := s.run(ctx); err != nil || !r.has(child) {
		t.Errorf("the child, %d, is not among %v (%v)", child, r, err)
		_ = unix.Kill(child, unix.SIGKILL)
	}
}

// A child from before this process became a subreaper, as in a wrapper that has executed it, does not count as an orphan. Neither does a
// child of the first process of a container, which adopts the orphans of others.
func TestSweepOrphansSparesEarlierChildren(t *testing.T) {
	before := exec.Command("sleep", "1000")
	before.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := before.Start(); err != nil { // without this package, as a wrapper does
		t.Fatal(err)
	}
	defer before.Wait()
	defer before.Process.Kill()
	executes(t, "sleep", before.Process.Pid)
	reaper, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Close()
	swept(t, SweepOrphans, newCookie(t))
	if !alive(before.Process.Pid) {
		t.Error("a child from before was killed")
	}
	s, err := readStat(before.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	s.start++ // another process with its number
	if !children.isOrphanOfWorker(s, unix.Getpid()) {
		t.Error("its number protects another")
	}
	s.parent = 1
	if children.isOrphanOfWorker(s, 1) {
		t.Error("the first process of a container takes a child for its own")
	}
}

// An orphan that belongs to an inner run has a different cookie.
func TestSweepOrphansSparesTheNested(t *testing.T) {
	reaper, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Close()
	cookie, other := newCookie(t), newCookie(t)
	p, lines := startTest(t, shell(cookie, CookieVariable+`=$1 setsid sleep 1000 & echo nested $!; wait`, other), Start)
	nested := pidAfter(t, lines, "nested")
	executes(t, "sleep", nested)
	p.Signal(unix.SIGTERM) // ends the shell; the other process has left its group
	wait(t, p)
	testkit.Eventually(t, "the orphan is ours", func() bool { s, _ := readStat(nested); return s.parent == unix.Getpid() })
	swept(t, SweepOrphans, cookie)
	if !alive(nested) {
		t.Error("another run's process was killed")
	}
	swept(t, sweepCookie, other)
	testkit.Eventually(t, "somebody waits for it", func() bool { _, err := readStat(nested); return err != nil })
}

// BenchmarkSweepOfNoProcesses measures a sweep that finds no processes, as at the end of most runs.
func BenchmarkSweepOfNoProcesses(b *testing.B) {
	for b.Loop() {
		if _, err := SweepOrphans(b.Context(), NewCookie()); err != nil {
			b.Fatal(err)
		}
	}
}

// sweepCookie does what SweepOrphans does, for a process that is not a subreaper.
func sweepCookie(ctx context.Context, cookie string) (Swept, error) {
	if err := checkCookie(cookie); err != nil {
		return Swept{}, err
	}
	return sweep(ctx, targetsOf(cookie))
}
