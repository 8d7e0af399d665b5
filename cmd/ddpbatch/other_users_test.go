package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFolderNamedAsAJobIsNotThatJob lets another user put run directories into the folder where the victim works. They are named like jobs
// and runs of the victim.
func TestFolderNamedAsAJobIsNotThatJob(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.runsOf(attacker, 0o755)
	planted := l.submit(attacker)
	l.must(attacker, "chmod", "-R", "go+rX,go-w", planted)
	l.runsOf(attacker, 0o777)
	names := []string{"500", "501", "x-500"}
	for _, name := range names {
		l.must(attacker, "cp", "-r", planted, name)
		l.must(attacker, "sh", "-c", `echo planted >"$1/slurm-500.log"; chmod -R go+rX "$1"`, "sh", name)
	}
	if err := os.RemoveAll(filepath.Join(l.project, "runs")); err != nil {
		t.Fatal(err)
	}
	l.runsOf(victim, 0o755)
	own := l.submit(victim)
	for _, name := range []string{"500", "x-500"} {
		if out := l.must(victim, l.program, "status", name); !strings.Contains(out, own[len(l.project)+1:]) {
			t.Errorf("status %s does not show the victim's own run:\n%s", name, out)
		}
		if out, code := l.as(victim, l.program, "logs", name); code != 0 || strings.Contains(out, "planted") {
			t.Errorf("logs %s ended with %d:\n%s", name, code, out)
		}
	}
	if out, code := l.as(victim, l.program, "status", "501"); code != 2 || !strings.Contains(out, "no such run") {
		t.Errorf("status 501 ended with %d, want 2:\n%s", code, out)
	}
	if out := l.must(victim, l.program, "logs", "./501"); !strings.Contains(out, "planted") {
		t.Errorf("a path does not name the folder:\n%s", out)
	}
	if out := l.must(victim, l.program, "cancel", "500"); !strings.Contains(l.calls(), "scancel by 4242") {
		t.Errorf("cancel 500 cancelled nothing:\n%s", out)
	}
}

// TestBadRunsHideNoOthers lists runs among which another user has put some that cannot be read.
func TestBadRunsHideNoOthers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.runsOf(0, 0o777|fs.ModeSticky)
	own := l.submit(victim)
	bad := map[string]string{
		`printf '\033]0;x\a' >"$1/jobid"`: "", `rm -f "$1/metrics.jsonl"; mkfifo "$1/metrics.jsonl"`: "", `chmod 000 "$1/attempts"`: "",
		`sed -i s/500/99999999999/g "$1/jobid" "$1/ledger.jsonl"`: "", // a job id that no command of Slurm accepts
	}
	for spoil := range bad {
		bad[spoil] = l.submit(attacker)
		l.must(attacker, "sh", "-c", `chmod -R go+rX "$1"; `+spoil, "sh", bad[spoil])
	}
	out := l.must(victim, l.program, "status")
	if !strings.Contains(out, own[len(l.project)+1:]) || !strings.Contains(out, "500\tx\tRUNNING\t") {
		t.Errorf("status does not show the victim's own run, which goes on:\n%s", out)
	}
	for spoil, run := range bad {
		row := ""
		for line := range strings.Lines(out) {
			if strings.Contains(line, run[len(l.project)+1:]) {
				row = line
			}
		}
		if !strings.Contains(row, "read the run's metrics") && !strings.Contains(row, "job id") && !strings.Contains(row, "attempts") {
			t.Errorf("after %s the row does not say what is wrong: %q", spoil, row)
		}
		if out, code := l.as(victim, l.program, "status", run); code == 0 {
			t.Errorf("status of that run alone ended with 0 after %s:\n%s", spoil, out)
		}
	}
}

// TestLogsControlNoTerminal shows logs of a run in which another user has hidden control sequences of a terminal.
func TestLogsControlNoTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.runsOf(0, 0o777|fs.ModeSticky)
	run := l.submit(attacker)
	l.must(attacker, "sh", "-c", `cd "$1" && mkdir -p attempts/1/logs && echo 499 >jobid && echo said >attempts/1/logs/n1.0.out &&
		echo said >"attempts/1/logs/$(printf 'n\033[31m').0.out" &&
		echo '{"schema": 1, "attempt": 1, "job_id": "499", "exit": 1, "cause": "crash",
			"message": "\u001b]0;owned\u0007\u009bm it failed"}' >attempts/1/verdict.json &&
		chmod -R go+rX .`, "sh", run)
	for _, command := range [][]string{
		{"logs", "--rank", "0"}, {"logs", "--attempt", "1"}, {"logs", "-f"}, {"logs", "-f", "--rank", "0"}, {"cancel"},
	} {
		out, _ := l.as(victim, l.program, append(command, run)...)
		if strings.ContainsAny(out, "\x1b\a\u009b") {
			t.Errorf("%q wrote to the terminal: %q", command, out)
		}
		if command[0] == "logs" && !strings.Contains(out, "said") && !strings.Contains(out, "it failed") {
			t.Errorf("%q showed nothing of the run: %q", command, out)
		}
	}
}

// TestSimulationOfAnotherUserIsNotSignalled lets root cancel a run that claims to be simulated by a process which belongs to a user other
// than the run's owner.
func TestSimulationOfAnotherUserIsNotSignalled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.runsOf(0, 0o777|fs.ModeSticky)
	run := l.submit(attacker)
	l.must(attacker, "chmod", "-R", "go+rX", run)
	process := exec.Command("sh", "-c", `cd "$1" && log=slurm-$$.log && while ! [ -e "$log" ]; do :; done
		exec 3<"$log"; echo ready; exec sleep 1000`, "sh", run)
	process.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: victim, Gid: victim}, Pdeathsig: syscall.SIGKILL}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	l.must(attacker, "sh", "-c", `cd "$1" && sed -i 's/"kind": "slurm"/"kind": "simulate"/' spec.json &&
		echo "$2" >jobid && chmod go+r spec.json jobid &&
		touch "slurm-$2.log" && chmod go+r "slurm-$2.log"`, "sh", run, fmt.Sprint(process.Process.Pid))
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Errorf("the victim's process said %q (%v)", line, err)
	}
	if said, code := l.as(0, l.program, "cancel", run); code == 0 || !strings.Contains(said, "has ended already") {
		t.Errorf("cancel ended with %d:\n%s", code, said)
	}
	if err := process.Process.Kill(); err != nil {
		t.Error(err)
	}
	process.Wait()
	if status := process.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the victim's process ended by %v", status.Signal())
	}
}
