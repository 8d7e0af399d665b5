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

// processesWith lists the live processes of this machine whose environment has all the given NAME=value pairs. A process that has ended and
// was not reaped has no environment any more.
func processesWith(pairs ...string) []int {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []int
	for _, path := range paths {
		environ, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		all := true
		for _, pair := range pairs {
			all = all && bytes.Contains(append([]byte{0}, environ...), append([]byte("\x00"+pair), 0))
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && all {
			pids = append(pids, pid)
		}
	}
	return pids
}

// noSurvivors fails a test that has ended if processes that use its folders live on for longer than an ending process needs. It kills these
// processes, since they would write into folders that are about to be removed.
func noSurvivors(t testing.TB, folders ...string) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond) // between two looks at all processes
	defer ticker.Stop()
	deadline := time.Now().Add(testkit.Patience)
	left := processesOn(folders...)
	for ; len(left) > 0 && time.Now().Before(deadline); left = processesOn(folders...) {
		<-ticker.C
	}
	for pid, args := range left {
		t.Errorf("process %d lives on, %v after the test: %s", pid, testkit.Patience, args)
		_ = syscall.Kill(pid, syscall.SIGKILL) // an error means that it has ended by now
	}
}

// processesOn lists the command lines of the live processes of this machine that use one of the folders, by pid: they run in it, or have it
// in their environment or on their command line.
func processesOn(folders ...string) map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(dir + "/environ") // errors mean that it has ended, and may not be reaped yet
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		cwd, _ := os.Readlink(dir + "/cwd")
		all := slices.Concat(environ, []byte{0}, cmdline, []byte{0}, []byte(cwd), []byte{0})
		on := func(folder string) bool { // includes the end of the name, since another folder's name may begin with it
			return bytes.Contains(all, []byte(folder+"/")) || bytes.Contains(all, []byte(folder+"\x00"))
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && slices.ContainsFunc(folders, on) {
			found[pid] = strings.TrimSpace(fmt.Sprintf("%s (in %s)", bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}), cwd))
		}
	}
	return found
}
