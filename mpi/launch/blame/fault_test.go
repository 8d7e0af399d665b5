package blame

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// faulted returns what faulthandler writes about an aborted program with the given number of other threads. The thread that died has the
// given number of frames. If current, it is a Python thread.
func faulted(others, frames int, current bool) []string {
	lines := []string{"Fatal Python error: Aborted", ""}
	for i := range others {
		lines = append(lines, fmt.Sprintf("Thread 0x00007f3ba2209%03x (most recent call first):", i),
			`  File "/usr/lib/python3.11/threading.py", line 320 in wait`,
			`  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap`, "")
	}
	head := "Thread"
	if current {
		head = "Current thread"
	}
	lines = append(lines, head+" 0x00007f3ba2209040 (most recent call first):")
	for i := range frames {
		lines = append(lines, fmt.Sprintf(`  File "/home/u/train.py", line %d in f`, i))
	}
	return append(lines, "", "Extension modules: torch._C, torch._C._fft (total: 2)")
}

// The last words of an aborted program include the reason, which it prints before faulthandler's stacks, however many stacks follow.
func TestAbortedProgramIsJudgedByItsOwnWords(t *testing.T) {
	said := []string{
		"[E ProcessGroupNCCL.cpp:915] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) " +
			"ran for 600000 milliseconds",
		"terminate called after throwing an instance of 'std::runtime_error'",
		"  what():  [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) " +
			"ran for 600000 milliseconds",
	}
	for _, others := range []int{0, 1, 30} {
		for _, current := range []bool{true, false} {
			tail := Words(slices.Concat(said, faulted(others, 40, current)), nil)
			d := Death{Signal: 6, Tail: tail}
			if !Victim(d) {
				t.Errorf("%d threads: it lost a peer, and is taken for the first", others)
			}
			if a := lastWords(d); a.error != said[2] {
				t.Errorf("%d threads: the error is %q", others, a.error)
			}
			if len(tail) != len(said)+2+faultFrames || !strings.HasSuffix(tail[len(tail)-1], "line 7 in f") {
				t.Errorf("%d threads: %d words:\n%s", others, len(tail), strings.Join(tail, "\n"))
			}
		}
	}
	if a := lastWords(Death{Signal: 6, Tail: Words(faulted(3, 3, true), nil)}); a.error != "Fatal Python error: Aborted" {
		t.Errorf("one that has said nothing: %q", a.error)
	}
}

func TestOtherLinesAroundAFaultStay(t *testing.T) {
	before, after := []string{"epoch 1", `  File "x.py", line 3, in f`}, []string{"the shell: aborted", `  File "y.py", line 3 in g`}
	got := shortenFaults(slices.Concat(before, faulted(2, 1, true), after, faulted(1, 1, false), after))
	want := slices.Concat(before,
		[]string{"Fatal Python error: Aborted", "Current thread 0x00007f3ba2209040 (most recent call first):",
			`  File "/home/u/train.py", line 0 in f`}, after,
		[]string{"Fatal Python error: Aborted", "Thread 0x00007f3ba2209040 (most recent call first):",
			`  File "/home/u/train.py", line 0 in f`}, after)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := shortenFaults([]string{"Fatal Python error: Aborted"}); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}
