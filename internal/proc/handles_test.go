package proc

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

func TestHandles(t *testing.T) {
	cookie := newCookie(t)
	_, lines := startTest(t, shell(cookie, `trap : USR2; trap '' USR1; echo trapped $$; while :; do sleep 1000; done`), Start)
	trapped := pidAfter(t, lines, "trapped")
	for _, test := range []struct {
		what string
		pid  int
		sig  syscall.Signal
		want bool
	}{
		{"a trap", trapped, syscall.SIGUSR2, true},
		{"ignored", trapped, syscall.SIGUSR1, false},
		{"the default", trapped, syscall.SIGTERM, false},
		{"Go's own", os.Getpid(), syscall.SIGUSR2, true},
		{"of no handler", os.Getpid(), syscall.SIGKILL, false},
		{"no signal", os.Getpid(), 0, false},
		{"no signal", os.Getpid(), -3, false},
		{"no signal", os.Getpid(), 65, false},
	} {
		if got, err := Handles(test.pid, test.sig); err != nil || got != test.want {
			t.Errorf("%s: %v, %v; want %v", test.what, got, err, test.want)
		}
	}
	if _, err := Handles(1<<22+1, syscall.SIGUSR2); err == nil {
		t.Error("a process that cannot be has handlers")
	}
}

func TestCaughtSignals(t *testing.T) {
	if got, err := caughtSignals([]byte("Name:\tSigCgt: ff\nSigIgn:\t01\nSigCgt:\t0000000000000802\n")); err != nil || got != 0x802 {
		t.Errorf("%x, %v", got, err)
	}
	for _, bad := range []string{"", "SigCgt", "SigCgt:\n", "SigCgt:\txyz\n", "SigCgt:\t10000000000000000\n", "SigIgn:\t1\n"} {
		if got, err := caughtSignals([]byte(bad)); err == nil {
			t.Errorf("%q was read as %x", bad, got)
		}
	}
}

// The program behind a shell is warned, its helper is not, and a shell that has a handler is warned alone.
func TestWarn(t *testing.T) {
	const program = `trap 'echo told 0' USR2; sleep 1000 & echo program $$; while :; do wait; done`
	for name, test := range map[string]struct {
		script string
		told   int
	}{
		"itself":  {program, 1},
		"behind":  {`sh -c "$1" & wait; exit`, 1},
		"outer":   {`trap 'echo told 0' USR2; sh -c "trap 'echo inner 0' USR2; while :; do sleep 0.01; done" & echo program $$; while :; do wait; done`, 1},
		"nobody":  {`sleep 1000 & echo program $$; wait`, 0},
		"several": {`sh -c "$1" & sh -c "$1" & sh -c "$1" & echo program $$; wait`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			p, lines := startTest(t, shell(newCookie(t), test.script, program), Start)
			for range max(1, test.told) {
				pidAfter(t, lines, "program")
			}
			if name != "outer" { // the inner one need not have any yet; and what a shell has forked has its handlers until it runs
				testkit.Eventually(t, "all have handlers, and nobody else", func() bool { return handlers(p.Pid()) == test.told })
			}
			told, err := p.Warn(syscall.SIGUSR2)
			if err != nil || told != test.told {
				t.Errorf("%d were told, %v; want %d", told, err, test.told)
			}
			for range told {
				pidAfter(t, lines, "told")
			}
			if !alive(p.Pid()) {
				t.Error("the warning killed the child")
			}
		})
	}
	p, err := Start(exec.Command("true"))
	if err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	if told, err := p.Warn(syscall.SIGUSR2); told != 0 || err != nil {
		t.Errorf("one that has ended: %d, %v", told, err)
	}
}

// handlers counts the processes of a group that have a handler for USR2.
func handlers(group int) (n int) {
	all, _ := stats()
	for _, s := range all {
		if has, _ := Handles(s.pid, syscall.SIGUSR2); s.group == group && has {
			n++
		}
	}
	return n
}
