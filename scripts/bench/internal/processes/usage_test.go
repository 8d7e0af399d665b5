package processes

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
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

// The processor time of another process grows while it works, and not while it sleeps.
func TestCPUTime(t *testing.T) {
	for text, works := range map[string]bool{"while :; do :; done": true, "exec sleep 1000": false} {
		cmd := exec.Command("/bin/sh", "-c", text)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		time.Sleep(300 * time.Millisecond)
		used, err := CPUTime(cmd.Process.Pid)
		if err != nil || works && used < 20*time.Millisecond || !works && used > 100*time.Millisecond {
			t.Errorf("%s: %v, %v", text, used, err)
		}
	}
	if used, err := CPUTime(os.Getpid()); err != nil || used <= 0 {
		t.Errorf("this process: %v, %v", used, err)
	}
	if used, err := CPUTime(1 << 28); err == nil {
		t.Errorf("no process: %v", used)
	}
}
