package watch

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

func TestWhere(t *testing.T) {
	p, _ := hang(t, exec.Command("/bin/sh", "-c", "sleep 1000 & echo ready; wait"))
	testkit.Eventually(t, "the shell's only child sleeps", func() bool { return Where(p.Pid()).Sleeps })
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is stopped", func() bool { return Where(p.Pid()).Stopped })
	p.Signal(syscall.SIGKILL)
	<-p.Done()
	testkit.Eventually(t, "it has ended, and so has its child", func() bool { return Where(p.Pid()) == Condition{Text: "it has ended"} })
	two, _ := hang(t, exec.Command("/bin/sh", "-c", "sleep 1000 & sleep 1001 & echo ready; wait"))
	testkit.Eventually(t, "the shell waits for two", func() bool {
		text := Where(two.Pid()).Text
		return text == "in wait4" || text == "in rt_sigsuspend"
	})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WATCH_TEST_HANG=1")
	program, _ := hang(t, cmd)
	testkit.Eventually(t, "it waits", func() bool {
		got := Where(program.Pid()) // whichever of its threads is the first
		return got == Condition{Text: "in futex"} || got == Condition{Text: "in epoll_pwait"}
	})
}

func TestConditionSaysWhereAThreadIs(t *testing.T) {
	for state, want := range map[string]Condition{
		"T (stopped)":      {Stopped: true, Text: "stopped by a signal (SIGSTOP)"},
		"t (tracing stop)": {Stopped: true, Text: "stopped by a debugger"},
		"D (disk sleep)":   {Held: true, Text: "held by a disk, a file server or a device, in read"},
		"R (running)":      {Text: "running"},
		"S (sleeping)":     {Text: "in read"},
	} {
		if got := (thread{state: state, call: "read"}).condition(); got != want {
			t.Errorf("%s: %+v, want %+v", state, got, want)
		}
	}
	if got := (thread{state: "S (sleeping)", waits: "hrtimer_nanosleep"}).condition(); !got.Sleeps {
		t.Errorf("its system call is not told: %+v", got)
	}
}
