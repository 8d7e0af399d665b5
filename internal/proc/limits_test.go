package proc

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Children get the hard limit of open files as their soft limit. Go raises the soft limit only for itself. The limit of the stack does not
// change.
func TestChildrenGetTheHardFileLimit(t *testing.T) {
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
