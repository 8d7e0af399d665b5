package live

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/testkit"
)

func TestWhatIsAlike(t *testing.T) {
	numbers := map[string]bool{"120": true, "121": true, "7": true}
	for _, test := range []struct{ said, want string }{
		{"process 120, \"python3\", child of 7: waiting\n", "process #, \"python3\", child of #: waiting\n"},
		{"  2 threads (120, 121), \"x\": S, in futex(0x7f01, 0x80)\n", "  2 threads (#, #), \"x\": S, in futex(0x, 0x)\n"},
		{"    train (train.py:120)\n", "    train (train.py:120)\n"}, // a line number of a source file
		{"Thread 121 (idle): \"MainThread\"\n", "Thread # (idle): \"MainThread\"\n"},
		{"  rank 99 (99)\n", "  rank 99 (99)\n"},
		{"  thread 120, \"x\": R (running)\n    irq+0x1\n  thread 121, \"x\": S\n    poll+0x1/0x2\n",
			"  thread #, \"x\": R (running)\n  thread #, \"x\": S\n    poll+0x/0x\n"},
	} {
		if got := alike(test.said, numbers); got != test.want {
			t.Errorf("alike(%q) is %q, want %q", test.said, got, test.want)
		}
	}
}

// TestAnswersComeThroughInPieces: the lines of several nodes may be interleaved in any order, and mixed with srun's own messages.
func TestAnswersComeThroughInPieces(t *testing.T) {
	var want []rankStacks
	var lines []string
	for rank := range 3 {
		var said bytes.Buffer
		for i := range 2000 {
			said.WriteString(strconv.Itoa(i*7919%(rank+997)) + "\n")
		}
		answer := rankStacks{RankProcess{Rank{rank, "n" + strconv.Itoa(rank)}, 100 + rank}, "in futex", said.String(), "x"}
		want = append(want, answer)
		var out bytes.Buffer
		must(t, writeFrames(&out, answer))
		for line := range strings.Lines(out.String()) {
			if len(line) > 512 {
				t.Errorf("a line has %d bytes", len(line))
			}
			lines = append(lines, line)
		}
	}
	var f frames
	for i := range lines { // in reverse order
		line := lines[len(lines)-1-i] + "srun: job 12 queued\n"
		for _, half := range []string{line[:len(line)/2], line[len(line)/2:]} {
			if n, err := f.Write([]byte(half)); n != len(half) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	got := f.all()
	groups := fold(got)
	if len(groups) != 1 || len(groups[0].Ranks) != 3 || groups[0].Text != want[0].Text {
		t.Errorf("they are not folded: %+v", groups)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("what came is not what was sent")
	}
}

func FuzzFrames(f *testing.F) {
	var out bytes.Buffer
	_ = writeFrames(&out, rankStacks{Text: "x"})
	f.Add(out.Bytes())
	f.Add([]byte("ddpbatch-stacks 1 0 2 aGFsbG8=\nddpbatch-stacks 1 1 3 aGFsbG8=\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var got frames
		if n, err := got.Write(said); n != len(said) || err != nil {
			t.Fatal(n, err)
		}
		Stacks{Groups: fold(got.all())}.Print(&bytes.Buffer{})
	})
}

func TestPageHasEqualRanksTogether(t *testing.T) {
	all := []rankStacks{
		{RankProcess{Rank{3, "n2"}, 43}, "running", "process 43\n", "b"},
		{RankProcess{Rank{0, "n1"}, 40}, "in futex", "process 40\n\x1b[31mred\n", "a"},
		{RankProcess{Rank{2, "n2"}, 42}, "in futex", "process 42\n", "a"},
		{RankProcess{Rank{1, "n1"}, 41}, "in futex", "process 41\n", "a"},
	}
	var page strings.Builder
	s := Stacks{Job: "12", Attempt: 2, Time: time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), Groups: fold(all),
		Missing: []Rank{{4, "n3"}, {5, "n3"}}}
	s.Print(&page)
	const want = `job 12, attempt 2, 2026-11-27 10:00:00

ranks 0-2 on n1, n2: in futex
  (of rank 0)
  process 40
   [31mred

rank 3 on n2: running
  process 43

ranks 4-5 on n3: no answer: the node did not answer in time, or the process has ended or has cleared its environment
`
	if page.String() != want {
		t.Errorf("the page is\n%s\nwant\n%s", page.String(), want)
	}
}

// TestStacksHarmNoRank: processes that are at the same place are reported as equal, and they go on.
func TestStacksHarmNoRank(t *testing.T) {
	run := newRun(t, "n1", "n1")
	var pids []int
	for rank := range 2 {
		p := child(t, t.TempDir(), "DDPBATCH_RUN_DIR="+run.Path(), "SLURMD_NODENAME=n1", proc.CookieVariable+"=c",
			"RANK="+strconv.Itoa(rank))
		pids = append(pids, p.Process.Pid)
	}
	testkit.Eventually(t, "both sleep, and are found at one place", func() bool {
		var f frames
		must(t, Node{Run: run, Name: "n1"}.Stacks(t.Context(), &f))
		groups := fold(f.all())
		return len(groups) == 1 && len(groups[0].Ranks) == 2 && strings.Contains(groups[0].Text, `"sleep"`)
	})
	for _, pid := range pids {
		if relatives, err := proc.Relatives(pid); err != nil || len(relatives) != 1 {
			t.Errorf("process %d: %v, %v", pid, relatives, err)
		}
	}
}
