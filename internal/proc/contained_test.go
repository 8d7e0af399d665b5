package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

// contained starts a client and the process in its "container". That process is outside the client's group, and the client waits until it
// ends.
func contained(t *testing.T, inside string) *Contained {
	t.Helper()
	pair := "DDPBATCH_TEST_CONTAINED=" + newCookie(t)
	client := exec.Command("sh", "-c", fmt.Sprintf(`setsid env "$0" sh -c %q & pid=$!; wait "$pid"`, inside), pair)
	p, err := Start(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Signal(syscall.SIGKILL) })
	c := NewContained(p, false, pair)
	testkit.Eventually(t, "the process is found", func() bool { return c.Pid() != p.Pid() })
	return c
}

func TestSignalReachesWhatIsInTheContainer(t *testing.T) {
	c := contained(t, `trap "exit 5" TERM; while :; do sleep 0.02; done`)
	testkit.Eventually(t, "there is a handler", func() bool {
		handles, err := Handles(c.Pid(), syscall.SIGTERM)
		return err == nil && handles
	})
	if err := c.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wait(t, c.Process)
	if code, sig := c.End(); code != 5 || sig != 0 {
		t.Errorf("the client ended with %d, %v; want the code of the process, 5", code, sig)
	}
}

func TestKillLeavesTheClientToItself(t *testing.T) {
	c := contained(t, `trap "" TERM; while :; do sleep 0.02; done`)
	if err := c.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait(t, c.Process)
	if code, sig := c.End(); code != 137 || sig != 0 {
		t.Errorf("the client ended with %d, %v; want 137 of the process that was killed", code, sig)
	}
}

func TestWarningSparesWhatWouldDieOfIt(t *testing.T) {
	c := contained(t, `sleep 1000`)
	if sent, err := c.Warn(syscall.SIGUSR2); sent != 0 || err != nil {
		t.Errorf("the warning went to %d processes, %v", sent, err)
	}
	if err := c.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait(t, c.Process)
	if sent, err := c.Warn(syscall.SIGUSR2); sent != 0 || err != nil {
		t.Errorf("after the end the warning went to %d processes, %v", sent, err)
	}
}

// The sweep kills two children of an adopted monitor: the process in the container, which has a cookie, and a runtime that waits to begin
// one. The child that removes the container does not have a cookie, and lives on, as does the monitor.
func TestSweepLeavesTheMonitorToTidyUp(t *testing.T) {
	dir := t.TempDir()
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{monitorName, "runc"} {
		if err := os.WriteFile(filepath.Join(dir, name), shell, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const text = `%s=%s sh -c 'echo inside $$; exec sleep 1000' &
"${0%%/*}/runc" -c 'echo begins $$; kill -STOP $$' &
sh -c 'echo tidies $$; exec sleep 1000' &
wait
`
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, fmt.Appendf(nil, text, CookieVariable, newCookie(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], filepath.Join(dir, monitorName), script)
	cmd.Env = append(os.Environ(), roleVariable+"=monitored")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	var begins, inside, tidies int
	var killed [2]int
	if _, err := fmt.Sscanf(strings.Join(lines, "\n"), "begins %d\ninside %d\nkilled %d\nkilled %d\ntidies %d",
		&begins, &inside, &killed[0], &killed[1], &tidies); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer syscall.Kill(tidies, syscall.SIGKILL) // then the monitor ends
	if !slices.Contains(killed[:], begins) || !slices.Contains(killed[:], inside) || len(lines) != 5 {
		t.Errorf("said %q, want the runtime and what is inside killed, and no other", out)
	}
	if err := syscall.Kill(tidies, 0); err != nil {
		t.Errorf("what removes the container: %v", err)
	}
}

// Rootless Podman keeps a user's namespaces in one process, which the user's first client on a node starts. That client may be a rank's. If
// the process is killed, the user's other containers on the node are lost.
func TestSweepSparesPodmansPause(t *testing.T) {
	data, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	pause := filepath.Join(t.TempDir(), "catatonit")
	if err := os.WriteFile(pause, data, 0o700); err != nil {
		t.Fatal(err)
	}
	cookie := newCookie(t)
	cmd := exec.Command(pause, "1000")
	cmd.Env = append(os.Environ(), CookieVariable+"="+cookie)
	p, _ := startTest(t, cmd, Start)
	executes(t, "catatonit", p.Pid())
	swept, err := sweepCookie(t.Context(), cookie)
	if err != nil || len(swept.Killed) > 0 || len(swept.Left) > 0 || !alive(p.Pid()) {
		t.Errorf("%+v, %v; want it spared", swept, err)
	}
	_ = p.Signal(syscall.SIGKILL)
	wait(t, p)
}
