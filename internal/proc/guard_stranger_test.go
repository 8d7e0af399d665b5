package proc

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Who has left its group and says nothing of the run in its environment dies with the agent all the same. $1 is a file for a script.
func TestGuardKillsStrangers(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		words  []string
	}{
		"session":   {`env -i setsid sh -c "trap '' TERM; echo stranger \$\$; sleep 1000; :" & wait`, []string{"stranger"}},
		"daemon":    {`(env -i setsid sh -c 'sh -c "trap \"\" TERM; echo stranger \$\$; sleep 1000; :" &' &); sleep 1000`, []string{"stranger"}},
		"overwrote": {roleVariable + "=hide setsid $0 & wait", []string{"hidden"}},
		// each has a session of its own, and two children like it
		"generations": {`cat >"$1" <<-'END'
			[ $1 -gt 0 ] || { echo stranger$2 $$; exec sleep 1000; }
			env -i setsid sh "$0" $(($1-1)) ${2}0 & env -i setsid sh "$0" $(($1-1)) ${2}1 &
			END
			sh "$1" 3 x; sleep 1000`, []string{"strangerx000", "strangerx011", "strangerx100", "strangerx111"}},
	} {
		t.Run(name, func(t *testing.T) {
			killAgent(t, newCookie(t), test.script, test.words...)
		})
	}
}

// The agent is killed while strangers make others: each ends when it has started the next, in a session of its own.
func TestGuardOutrunsStrangers(t *testing.T) {
	agent, lines := startAgent(t, newCookie(t), `cat >"$1" <<-'END'
		echo hop$1 $$
		[ $1 -gt 0 ] || exec sleep 1000
		env -i setsid sh "$0" $(($1-1)) &
		END
		for i in 1 2 3 4; do env -i setsid sh "$1" 10000 & done; wait; sleep 1000`)
	pidAfter(t, lines, "hop9990")
	if err := unix.Kill(agent.Pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait(t, agent)
	if text := closed(t, lines); strings.Contains(text, "hop0 ") {
		t.Error("one was not caught before its last hop")
	}
}

// The agent is killed as soon as its worker is there, whatever that has come to by then.
func TestGuardKillsEarlyStrangers(t *testing.T) {
	for range 10 {
		agent, lines := startAgent(t, newCookie(t), `
			for i in 1 2 3 4 5 6; do (env -i setsid sh -c 'sh -c "sleep 1000; :" &' &); done
			sleep 1000`)
		pidAfter(t, lines, "guard")
		if err := unix.Kill(agent.Pid(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wait(t, agent)
		closed(t, lines)
	}
}

// Who was never the agent's is left alone, though it has an environment and a session as a stranger has; so is the process of
// a run within the run, whose own guard cares for it.
func TestSweepSparesStrangersOfOthers(t *testing.T) {
	reaper, err := Subreaper() // nor does the kernel wake up what it stops below, as it does where init is the parent
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Close()
	cookie, inner := newCookie(t), newCookie(t)
	bystander := exec.Command("sleep", "1000")
	bystander.Env = []string{}
	bystander.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer bystander.Wait()
	defer bystander.Process.Kill()
	_, lines := startTest(t, as("agent", cookie, inner, "/bin/sh", "-c", `env -i setsid sh -c 'echo inner $$; exec sleep 1000' & wait`), Start)
	_, outers := startTest(t, shell(cookie, `env -i setsid sh -c 'echo outer $$; exec sleep 1000' & wait`), Start)
	pids := pidsAfter(t, lines, "guard", "inner")
	outer := pidAfter(t, outers, "outer")
	executes(t, "sleep", pids["inner"], outer)
	if err := unix.Kill(pids["guard"], unix.SIGSTOP); err != nil { // it would end the inner one as soon as its agent is killed
		t.Fatal(err)
	}
	defer unix.Kill(pids["guard"], unix.SIGCONT)
	s := swept(t, Sweep, cookie)
	if !s.has(outer) {
		t.Errorf("the stranger, %d, is not told among %v", outer, s.Killed)
	}
	if !alive(bystander.Process.Pid) || !alive(pids["inner"]) || !alive(pids["guard"]) {
		t.Errorf("alive: a bystander %v, the inner run's stranger %v, its guard %v",
			alive(bystander.Process.Pid), alive(pids["inner"]), alive(pids["guard"]))
	}
	if err := unix.Kill(pids["guard"], unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	gone(t, "the inner guard ends the inner stranger", pids["inner"], pids["guard"])
}
