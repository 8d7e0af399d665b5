package proc

import (
	"os"
	"os/exec"
	"syscall"
)

// guardScript waits for the end of its input and then kills its own process group. A signal that is
// meant for the rest of the group does not end it.
const guardScript = `trap '' HUP INT QUIT ALRM TERM USR1 USR2; read -r _; kill -KILL 0`

// guard is a small process in a child's group that outlives this process, to kill the group: the kernel's
// parent-death signal reaches the group's leader alone. Its input is a pipe whose other end this
// process holds, so that it wakes whatever ends this process. As it is a member of the group, the group's number
// cannot have become another's by then.
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File // nil: there is no guard
}

// startGuard adds a guard to a group whose leader has not been reaped. Where that cannot be done, for want
// of a shell, say, the group has none.
func startGuard(group int) guard {
	r, w, err := os.Pipe()
	if err != nil {
		return guard{}
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", guardScript)
	cmd.Stdin, cmd.Dir, cmd.Env = r, "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	if err := cmd.Start(); err != nil {
		w.Close()
		return guard{}
	}
	return guard{cmd, w}
}

// end ends and reaps the guard; the rest of the group has been killed.
func (g guard) end() {
	if g.pipe == nil {
		return
	}
	g.pipe.Close() // one that joined too late to be killed with the group kills itself now
	_ = g.cmd.Wait()
}
