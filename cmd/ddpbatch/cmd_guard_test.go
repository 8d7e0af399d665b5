package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/testkit"
)

// The guard's command kills the processes that it knows as soon as its orders end, and refuses invalid orders.
func TestGuardCommandKillsWhenOrdersEnd(t *testing.T) {
	cookie := proc.NewCookie()
	victim := exec.Command("sleep", "1000")
	victim.Env = append(os.Environ(), proc.CookieVariable+"="+cookie)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer victim.Process.Kill()
	testkit.Eventually(t, "the victim has its environment, which the kernel gives it after Start has returned", func() bool {
		return slices.Contains(processesWith(proc.CookieVariable+"="+cookie), victim.Process.Pid)
	})
	killed := make(chan error, 1)
	go func() { killed <- victim.Wait() }()
	guard := func(orders ...string) (code int, says string) {
		var out strings.Builder
		e := osEnv()
		e.In, e.Out, e.Err = strings.NewReader(""), &out, &out
		testkit.Within(t, testkit.Patience, func() {
			code = Main(t.Context(), e, append([]string{"ddpbatch", proc.GuardCommand}, orders...))
		})
		return code, out.String()
	}
	if code, says := guard("rubbish"); code != 1 || !strings.Contains(says, `"rubbish" is not an order for a guard`) {
		t.Errorf("code %d: %s", code, says)
	}
	select {
	case <-killed:
		t.Error("it killed a process that it had no order for")
	default:
	}
	if code, says := guard("=" + cookie); code != 0 || says != "" {
		t.Errorf("code %d: %s", code, says)
	}
	select {
	case <-killed:
	case <-time.After(testkit.Patience):
		t.Error("it did not kill")
	}
}
