package proc

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Children get the hard limit of open files, though Go raises its own alone, and the stack's stays.
func TestRaiseLimits(t *testing.T) {
	run := func(args string) []string {
		cmd := exec.Command("/bin/sh", "-c", "ulimit -Sn 333; ulimit -Hn 777; ulimit -Ss 4096; exec $0 "+args, os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=limits")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Fields(string(out))
	}
	if got := strings.Join(run(""), " "); got != "777 777 4096" {
		t.Errorf("soft, hard, stack: %s; want 777 777 4096", got)
	}
	if got := strings.Join(run("leave"), " "); got != "333 777 4096" {
		t.Errorf("without it: %s; the test shows nothing", got)
	}
}

func TestLimitTexts(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 bytes", 1023: "1023 bytes", 65536: "64 KiB", 8 << 20: "8 MiB", 3 << 29: "1.5 GiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
