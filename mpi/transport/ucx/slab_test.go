package ucx

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// limitVariable makes this test a process that may lock 64 KiB of memory, with a user to whom that limit applies.
const limitVariable = "DDPBATCH_TEST_UCX_LIMIT"

func TestLimitOnLockedMemoryIsReported(t *testing.T) {
	if os.Getenv(limitVariable) != "" {
		few := unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &few); err != nil {
			t.Fatal(err)
		}
		if err := tryLimit(64 << 10); err != nil {
			t.Errorf("as much as the limit: %v", err)
		}
		if err := tryLimit(1 << 20); err == nil || !strings.Contains(err.Error(), "lock 1 MiB of memory") ||
			!strings.Contains(err.Error(), "`ulimit -l` is 64 KiB") {
			t.Errorf("more than the limit: %v", err)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), limitVariable+"=1")
	if os.Getuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
