package processes

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

func TestParseMemory(t *testing.T) {
	const status = "Name:\tddpbatch\nVmPeak:\t 1300000 kB\nVmHWM:\t   20000 kB\nVmRSS:\t   10000 kB\nRssAnon:\t    5000 kB\nThreads:\t9\n"
	if m, err := parseMemory(status); err != nil || m != (Memory{10_000 << 10, 20_000 << 10, 5_000 << 10}) {
		t.Errorf("%+v, %v", m, err)
	}
	for what, bad := range map[string]string{
		"no VmRSS":  strings.ReplaceAll(status, "VmRSS", "VmXXX"),
		"no number": strings.ReplaceAll(status, "5000", "many"),
		"nothing":   "",
	} {
		if m, err := parseMemory(bad); err == nil {
			t.Errorf("%s: %+v", what, m)
		}
	}
}

// The processor time of another process grows while it works, and does not while it sleeps.
func TestCPUTimeGrowsWithWork(t *testing.T) {
	begin := func(text string) (pid int) {
		cmd := exec.Command("/bin/sh", "-c", text)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		return cmd.Process.Pid
	}
	works, sleeps := begin("while :; do :; done"), begin("exec sleep 1000")
	testkit.Eventually(t, "a process that works has used the processor", func() bool {
		used, err := CPUTime(works)
		if err != nil {
			t.Fatal(err)
		}
		return used >= 200*time.Millisecond
	})
	if used, err := CPUTime(sleeps); err != nil || used > 100*time.Millisecond {
		t.Errorf("a process that sleeps: %v, %v", used, err)
	}
	if used, err := CPUTime(os.Getpid()); err != nil || used <= 0 {
		t.Errorf("this process: %v, %v", used, err)
	}
	if used, err := CPUTime(1 << 28); err == nil {
		t.Errorf("no process: %v", used)
	}
}
