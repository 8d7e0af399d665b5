package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/rundir"
)

// changing lists the system calls that change files, or start a process. A flush (fsync) is not among them: it changes nothing for commands
// that run after a kill, since the machine keeps running.
var changing = map[uint64]string{
	unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite", unix.SYS_OPENAT: "open", unix.SYS_MKDIRAT: "mkdir", unix.SYS_RENAME: "rename",
	unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename", unix.SYS_UNLINKAT: "unlink", unix.SYS_SYMLINKAT: "symlink",
	unix.SYS_LINKAT: "link",
	unix.SYS_CLONE:  "clone",
}

// killAt traces the system calls of a program and kills it just before call number n of those that change files below dir or start a
// process. It returns the names of the calls before that. If there were fewer, killed is false.
func killAt(t *testing.T, dir string, cmd *exec.Cmd, n int) (calls []string, killed bool) {
	t.Helper()
	runtime.LockOSThread() // the thread that traces
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		t.Fatalf("the program does not stop at its start: %v, %v", status, err)
	}
	if err := syscall.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		t.Fatal(err)
	}
	inside := map[int]bool{} // threads that are in a call
	if err := syscall.PtraceSyscall(pid, 0); err != nil {
		t.Fatal(err)
	}
	for {
		thread, err := syscall.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			t.Fatalf("wait for the program: %v", err)
		}
		pass := 0
		switch {
		case status.Exited() || status.Signaled():
			delete(inside, thread)
			if thread == pid { // the last of its threads that Wait4 returns
				return calls, killed
			}
			continue
		case status.StopSignal() == syscall.SIGTRAP|0x80:
			inside[thread] = !inside[thread]
			name := changes(thread, dir)
			if !inside[thread] || name == "" || killed {
				break
			}
			if len(calls) == n {
				killed = true
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				continue
			}
			calls = append(calls, name)
		case status.StopSignal() != syscall.SIGTRAP && status.StopSignal() != syscall.SIGSTOP:
			pass = int(status.StopSignal())
		}
		_ = syscall.PtraceSyscall(thread, pass) // it may have been killed
	}
}

// changes names the system call that a thread is about to make, if it is one of changing and applies to a file below dir.
func changes(thread int, dir string) string {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(thread, &regs); err != nil {
		return ""
	}
	name := changing[regs.Orig_rax]
	path := ""
	switch name {
	case "":
		return ""
	case "clone":
		if regs.Rdi&unix.CLONE_VFORK == 0 {
			return ""
		}
		return name
	case "write", "pwrite":
		path, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", thread, regs.Rdi))
	case "open":
		if regs.Rdx&unix.O_CREAT == 0 {
			return ""
		}
		path = textAt(thread, regs.Rsi)
	case "rename":
		if path = textAt(thread, regs.Rsi); regs.Orig_rax == unix.SYS_RENAME {
			path = textAt(thread, regs.Rdi)
		}
	case "symlink":
		path = textAt(thread, regs.Rdx)
	default:
		path = textAt(thread, regs.Rsi)
	}
	if !strings.HasPrefix(path, dir+"/") {
		return ""
	}
	return name + " " + filepath.Base(path)
}

// textAt returns the text at an address of a thread's memory.
func textAt(thread int, address uint64) string {
	memory := make([]byte, 512)
	n, _ := syscall.PtracePeekData(thread, uintptr(address), memory) // the text may end in the next page
	text, _, _ := strings.Cut(string(memory[:n]), "\x00")
	return text
}

// canTrace skips a test if this machine does not permit tracing processes.
func canTrace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Skipf("this machine does not let processes be traced (ptrace): %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestKilledResumeLosesNoJob kills resume before each of its changes to the run directory, and in sbatch before and after Slurm has
// accepted the job.
func TestKilledResumeLosesNoJob(t *testing.T) {
	canTrace(t)
	for n := 0; ; n++ {
		q := newQueue(t)
		parent, run := q.resumable()
		calls, killed := killAt(t, parent, q.command(parent, "resume", run, "--set", "slurm.nodes=2"), n)
		q.rights(parent, run)
		if t.Failed() {
			t.Fatalf("killed after %q", calls)
		}
		if !killed {
			for _, want := range []string{"clone", "write ledger.jsonl"} { // otherwise resume was refused
				if !slices.Contains(calls, want) {
					t.Errorf("of %q none is %q", calls, want)
				}
			}
			t.Logf("killed at each of %d calls: %q", n, calls)
			break
		}
	}
	for _, mode := range []string{"before", "after", "told"} {
		q := newQueue(t)
		parent, run := q.resumable()
		q.says("mode", mode)
		if err := q.command(parent, "resume", run).Run(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("%s: resume ends with %v", mode, err)
		}
		q.says("mode", "refuse")
		if code, _, errs := q.run(parent, "resume", run); code == 0 ||
			!strings.Contains(errs, "was killed while it had claimed this run") || !strings.Contains(errs, "resume by process") {
			t.Errorf("%s: the one that was killed is not named: %d, %s", mode, code, errs)
		}
		q.rights(parent, run)
		if t.Failed() {
			t.Fatalf("killed by sbatch: %s", mode)
		}
	}
}

// TestKilledSubmitLosesNoJob checks the same as TestKilledResumeLosesNoJob for submit, starting when its run exists.
func TestKilledSubmitLosesNoJob(t *testing.T) {
	canTrace(t)
	prepare := func(mode string) (*queue, string) {
		q, parent := newQueue(t), t.TempDir()
		q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
		q.says("mode", mode)
		return q, parent
	}
	// rights checks what a killed submit has left, and reports whether there is a run.
	rights := func(q *queue, parent string) bool {
		runs := must(t, rundir.List, filepath.Join(parent, "runs"))
		if len(runs) == 0 {
			if jobs := q.jobs(); len(jobs) > 0 {
				t.Errorf("jobs %q of no run", jobs)
			}
			return false
		}
		q.rights(parent, runs[0].Path())
		return true
	}
	q, parent := prepare("")
	calls, _ := killAt(t, filepath.Join(parent, "runs"), q.command(parent, "submit", "job.toml"), 1<<20)
	// the rename that gives the run its name
	first := slices.IndexFunc(calls, func(call string) bool { return strings.HasPrefix(call, "rename .new-") })
	if first < 0 {
		t.Fatalf("no run is made by %q", calls)
	}
	rights(q, parent)
	for n := first; n <= len(calls); n++ {
		q, parent := prepare("")
		calls, _ := killAt(t, filepath.Join(parent, "runs"), q.command(parent, "submit", "job.toml"), n)
		if is := rights(q, parent); is != (n > first) || t.Failed() {
			t.Fatalf("killed after %q; there is a run: %t", calls, is)
		}
	}
	t.Logf("killed at each of %d calls: %q", len(calls)-first, calls[first:])
	for _, mode := range []string{"before", "after", "told"} {
		q, parent := prepare(mode)
		if err := q.command(parent, "submit", "job.toml").Run(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("%s: submit ends with %v", mode, err)
		}
		if !rights(q, parent) || t.Failed() {
			t.Fatalf("killed by sbatch: %s", mode)
		}
	}
}
