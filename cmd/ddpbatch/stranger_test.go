package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// TestStrangersDieWithTheAgent kills an agent of a simulated cluster, once alone and once with its workers. Afterward even the processes
// that had left their worker's session and cleared their environment are gone.
func TestStrangersDieWithTheAgent(t *testing.T) {
	for name, node := range map[string]bool{"with the agent": false, "with the agent and its workers": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			word := fmt.Sprintf("%d%d", os.Getpid(), time.Now().UnixNano())
			const script = `echo $PPID >"agent.$RANK.new"; mv "agent.$RANK.new" "agent.$RANK"
` + family
			job := "schema = 1\nname = \"strangers\"\n[slurm]\nnodes = 2\n[launch]\nnproc_per_node = 2\ngrace = \"3s\"\ncommand = " +
				quoteTOML(t, "sh", "-c", script, word) + "\n[requeue]\non = []\n"
			if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte(job), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd, out := command(dir, "simulate", "job.toml")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer time.AfterFunc(3*time.Minute, func() { cmd.Process.Kill() }).Stop() // longer than all waits below
			t.Cleanup(func() {
				for _, pid := range processesNaming(word) { // none, unless the test fails
					syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			const each = 5 // of a rank: the rank, a shell and its sleep, one whose parent has ended, and a stranger
			eventually(t, time.Minute, "all ranks run, with their relatives", func() bool { return len(processesNaming(word)) >= 4*each })
			text, err := os.ReadFile(filepath.Join(dir, "agent.3"))
			if err != nil {
				t.Fatal(err)
			}
			agent, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			killed := []int{agent}
			if node {
				killed = append(killed, processesWith("DDPBATCH_RUN_DIR="+runMade(t, dir).Path(), "SLURMD_NODENAME=node2")...)
			}
			for _, pid := range killed {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
					t.Fatal(err)
				}
			}
			if err := cmd.Wait(); err == nil {
				t.Errorf("the run did not fail:\n%s", out)
			}
			if v, err := runMade(t, dir).Verdict(1); err != nil || v.Cause != "node" {
				t.Errorf("the cause is %q (%v)\n%s", v.Cause, err, out)
			}
			eventually(t, testkit.Patience, "nobody is left", func() bool { return len(processesNaming(word)) == 0 })
		})
	}
}

// processesNaming lists the live processes with 1000.WORD on their command line: they sleep for a time that no other test uses. The command
// lines of agents hold the text too, as the workers' command, but do not count.
func processesNaming(word string) []int {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, path := range paths {
		line, err := os.ReadFile(path)
		named := bytes.Contains(line, []byte("1000."+word))
		if pid, convErr := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && convErr == nil && named {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
