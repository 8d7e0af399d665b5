package proc

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

func TestUsagesOfCountsDescendantsAndGroups(t *testing.T) {
	all := []stat{
		{pid: 10, parent: 1, group: 10, cpu: 1, state: 'S', threads: 1},                      // a leader
		{pid: 11, parent: 10, group: 10, cpu: 2, state: 'R', threads: 1},                     // its child
		{pid: 12, parent: 11, group: 12, cpu: 4, state: 'R', threads: 1},                     // in its own session
		{pid: 13, parent: 1, group: 10, cpu: 8, state: 'R', threads: 1},                      // its parent has ended
		{pid: 14, parent: 12, group: 12, cpu: 16, state: 'Z', threads: 1},                    // it has ended
		{pid: 20, parent: 1, group: 20, cpu: 32, state: 'T', threads: 1},                     // another leader
		{pid: 30, parent: 31, group: 30, cpu: 64}, {pid: 31, parent: 30, group: 30, cpu: 64}, // in a cycle
		{pid: 40, parent: 1, group: 40, cpu: 128},
	}
	want := []Usage{{CPU: 31, State: 'S'}, {CPU: 32, State: 'T'}, {}}
	for _, order := range []func([]stat){func([]stat) {}, slices.Reverse[[]stat]} {
		order(all)
		if got := usagesOf([]int{10, 20, 99}, all); !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if !want[1].Stopped() || want[0].Stopped() {
		t.Error("Stopped is not T")
	}
}

func TestUsagesSeesBusyAndStopped(t *testing.T) {
	cookie := newCookie(t)
	busy, _ := startTest(t, shell(cookie, `setsid sh -c 'while :; do :; done' & wait`), Start)
	idle, _ := startTest(t, exec.Command("sleep", "1000"), Start)
	if err := idle.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "one is busy and the other stopped", func() bool {
		got, err := Usages([]int{busy.Pid(), idle.Pid()})
		if err != nil {
			t.Fatal(err)
		}
		if got[1].CPU > 50*time.Millisecond {
			t.Fatalf("the one that is stopped used %v", got[1].CPU)
		}
		return got[0].CPU > 100*time.Millisecond && got[1].Stopped() && !got[0].Stopped()
	})
	relatives, err := Relatives(busy.Pid())
	if err != nil || len(relatives) != 2 || relatives[0].PID != busy.Pid() || relatives[1].Parent != busy.Pid() {
		t.Fatalf("%+v, %v", relatives, err)
	}
	if err := relatives[1].Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is gone", relatives[1].Gone)
	if err := relatives[1].Signal(unix.SIGKILL); err != nil {
		t.Errorf("a signal to one that is gone: %v", err)
	}
}

func TestIsGoKnowsThisProgram(t *testing.T) {
	if is, err := IsGo(os.Getpid()); !is || err != nil {
		t.Errorf("this test: %v, %v", is, err)
	}
	p, lines := startTest(t, shell(newCookie(t), "echo self $$; sleep 1000"), Start)
	pidAfter(t, lines, "self")
	if is, err := IsGo(p.Pid()); is || err != nil {
		t.Errorf("a shell: %v, %v", is, err)
	}
	if _, err := IsGo(1<<22 + 1); err == nil {
		t.Error("a process that cannot be has a program")
	}
}

// BenchmarkUsages measures what an agent does to look for hangs.
func BenchmarkUsages(b *testing.B) {
	for b.Loop() {
		if _, err := Usages([]int{1}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestWithVariablesWantsAllPairs: a process must have all pairs, each completely. A process that has ended is not found.
func TestWithVariablesWantsAllPairs(t *testing.T) {
	value := NewCookie()
	begin := func(second string) *Process {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = []string{"PROC_TEST=" + value, "SECOND=" + second}
		p, err := Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = p.Signal(syscall.SIGKILL)
			<-p.Done()
		})
		return p
	}
	one, eleven := begin("1"), begin("11")
	find := func(pairs ...string) (pids []int) {
		found, err := WithVariables(pairs...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			pids = append(pids, r.PID)
		}
		slices.Sort(pids)
		return pids
	}
	both := []int{one.Pid(), eleven.Pid()}
	slices.Sort(both)
	if got := find("PROC_TEST=" + value); !slices.Equal(got, both) {
		t.Errorf("with the first variable: %v, want %v", got, both)
	}
	if got := find("PROC_TEST="+value, "SECOND=1"); !slices.Equal(got, []int{one.Pid()}) {
		t.Errorf("with both variables: %v, want %d", got, one.Pid())
	}
	_ = one.Signal(syscall.SIGKILL)
	<-one.Done()
	if got := find("PROC_TEST="+value, "SECOND=1"); len(got) > 0 {
		t.Errorf("one that has ended: %v", got)
	}
}
