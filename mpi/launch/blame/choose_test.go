package blame

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	kill = int(syscall.SIGKILL)
	term = int(syscall.SIGTERM)
	segv = int(syscall.SIGSEGV)
	abrt = int(syscall.SIGABRT)
)

// raised is what Python prints for an uncaught exception.
func raised(exception ...string) []string {
	return append([]string{
		"Traceback (most recent call last):", `  File "train.py", line 9, in <module>`, "    main()",
		`  File "train.py", line 7, in main`, "    step()", "    ^^^^^^",
	}, exception...)
}

// logged is what a program prints for an exception that it caught.
func logged(exception string) []string {
	return []string{"Traceback (most recent call last):", `  File "hook.py", line 3, in cleanup`, "    it.close()", exception}
}

func during(before, after []string) []string {
	return slices.Concat(before, []string{"", "During handling of the above exception, another exception occurred:", ""}, after)
}

// file is an error file of the unix second 1,700,000,000 + at.
func file(exception string, at int64) *TorchError {
	return &TorchError{Message: exception, Time: time.Unix(1_700_000_000+at, 0)}
}

const (
	gone  = "RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572"
	reset = "RuntimeError: [./gloo/transport/tcp/pair.cc:589] Read error [127.0.0.1]:54687: Connection reset by peer"
	boom  = "ValueError: boom"
)

func sec(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// ChooseFailed finds a rank that failed by itself among ranks that saved or were stopped by their agents.
func TestChooseFailed(t *testing.T) {
	saved := Death{Exit: 75}
	for name, tc := range map[string]struct {
		deaths []Death
		want   int
	}{
		"nobody ended":          {nil, -1},
		"all are done or save":  {[]Death{{}, saved}, -1},
		"one lost the others":   {[]Death{saved, {Exit: 1, Tail: raised(gone)}}, -1},
		"one was told":          {[]Death{saved, {Signal: term, Stopping: true}}, -1},
		"one was killed":        {[]Death{saved, {Signal: kill, Stopping: true}}, -1},
		"one failed":            {[]Death{saved, {Exit: 1}}, 1},
		"one failed, told":      {[]Death{saved, {Exit: 1, Tail: raised(boom), Stopping: true}}, 1},
		"of two the first":      {[]Death{{Exit: 1, Ended: 2}, saved, {Exit: 1, Ended: 1}}, 2},
		"of two the one untold": {[]Death{{Exit: 1, Ended: 1, Tail: raised(boom), Stopping: true}, {Exit: 1, Ended: 2}}, 1},
	} {
		if got := ChooseFailed(tc.deaths); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// Each case says which rank really failed first. The ranks count from 0 in the order of the list.
func TestChoose(t *testing.T) {
	nccl := []string{
		"[E ProcessGroupNCCL.cpp:915] [Rank 0] NCCL watchdog thread terminated with exception: NCCL error: remote process exited or " +
			"there was a network error, NCCL version 2.14.3",
		"ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
		"terminate called after throwing an instance of 'std::runtime_error'",
		"  what():  [Rank 0] NCCL watchdog thread terminated with exception: NCCL error: remote process exited or there was a network " +
			"error, NCCL version 2.14.3",
		"ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
	}
	timeout := []string{"terminate called after throwing an instance of 'std::runtime_error'",
		"  what():  [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE, Timeout(ms)=1800000) ran " +
			"for 1803170 milliseconds before timing out."}
	for name, tc := range map[string]struct {
		deaths []Death
		want   int
	}{
		"nobody":           {nil, -1},
		"all done":         {[]Death{{}, {Ended: 1}}, -1},
		"one":              {[]Death{{}, {Exit: 3}}, 1},
		"first heard of":   {[]Death{{Exit: 3, Ended: sec(2)}, {Exit: 4, Ended: sec(1)}}, 1},
		"at the same time": {[]Death{{Exit: 3, Ended: sec(1)}, {Exit: 4, Ended: sec(1)}}, 0},

		// rank 3 raises; the others lose it and end before its interpreter does; its agent learns of their ends and stops rank 3
		"teardown is slow": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: raised(gone)}, {Exit: 1, Ended: sec(10.2), Tail: raised(reset)},
			{Exit: 1, Ended: sec(10.3), Tail: raised(gone), Stopping: true}, {Exit: 1, Ended: sec(12), Tail: raised(boom), Stopping: true},
		}, 3},
		"and TERM ends it": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: raised(gone)}, {Signal: term, Ended: sec(10.2), Tail: raised(boom), Stopping: true},
			{Signal: term, Ended: sec(10.15), Stopping: true},
		}, 1},
		"and the error file says so alone": {[]Death{
			{Exit: 1, Ended: sec(10.1), ErrorFile: file(gone, 10)},
			{Signal: term, Ended: sec(10.2), ErrorFile: file(boom, 10), Stopping: true},
		}, 1},
		// TERM goes to a rank's whole process group; it ends the rank's loaders, and the rank reports that
		"a victim, and one whose loaders were told": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: raised(gone)},
			{Exit: 1, Ended: sec(10.2), Tail: raised("RuntimeError: DataLoader worker (pid 77) is killed by signal: Terminated. "),
				Stopping: true},
		}, 0},
		"a victim, and one whose loader was killed for memory": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: raised(gone)},
			{Exit: 1, Ended: sec(10.2), Tail: raised("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. "),
				Stopping: true},
		}, 1},
		"a loader that somebody else has ended": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: raised(gone)},
			{Exit: 1, Ended: sec(10.2), Tail: raised("RuntimeError: DataLoader worker (pid 77) is killed by signal: Terminated. ")},
		}, 1},
		"not told in time": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: raised(gone)}, {Exit: 1, Ended: sec(10.2), Tail: raised(boom)},
		}, 1},
		// its peers are gone when it cleans up
		"meets lost peers while it cleans up": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: raised(gone)},
			{Exit: 1, Ended: sec(10.2), Tail: during(raised(boom), raised(gone)), Stopping: true},
		}, 1},
		// one of the others: the exception of a lost peer, and another exception that followed from it
		"raises something of its own about a lost peer": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: during(raised(gone), raised("TrainingError: epoch 3 failed"))},
			{Signal: segv, Ended: sec(10.9)},
		}, 1},
		"crashes on its way out for a lost peer": {[]Death{
			{Signal: segv, Ended: sec(10.1), Tail: append(raised(gone), "Fatal Python error: Segmentation fault")},
			{Exit: 1, Ended: sec(10.4), Tail: raised(boom), Stopping: true},
		}, 1},
		"noise of a dying interpreter": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: slices.Concat(raised(gone), []string{"Exception ignored in: <function Pool.__del__ at 0x7f>"},
				[]string{"Traceback (most recent call last):", `  File "pool.py", line 271, in __del__`,
					"TypeError: 'NoneType' object is not callable"})},
			{Exit: 1, Ended: sec(10.2), Tail: raised(boom)},
		}, 1},
		"noise of exit handlers": {[]Death{
			{Exit: 1, Ended: sec(10.1),
				Tail: slices.Concat(raised(gone), logged("AttributeError: 'NoneType' object has no attribute 'close'"))},
			{Exit: 1, Ended: sec(10.2), Tail: raised(boom)},
		}, 1},
		"an exception that is only logged, and noise": {[]Death{
			{Exit: 1, Ended: sec(10.1),
				Tail: slices.Concat(logged(gone), []string{"Exception in thread Thread-3:"}, logged("TypeError: noise"))},
			{Exit: 1, Ended: sec(10.2), Tail: raised(boom)},
		}, 1},
		"an exception that was logged and borne": {[]Death{
			{Exit: 1, Ended: sec(10.1), Tail: slices.Concat(logged("OSError: no such file"), []string{"retrying"}, raised(gone))},
			{Exit: 1, Ended: sec(10.2), Tail: raised(boom)},
		}, 1},
		"labelled by newer PyTorch": {[]Death{
			{Exit: 1, Ended: sec(10.1),
				Tail: labelled(0, raised("torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1",
					"ncclRemoteError: A call failed"))},
			{Exit: 1, Ended: sec(10.2), Tail: labelled(1, raised(boom)), Stopping: true},
		}, 1},

		// a rank that the kernel ended cannot print anything
		"killed":                {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(gone)}, {Signal: kill, Ended: sec(5.1)}}, 1},
		"a fault":               {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(gone)}, {Signal: segv, Ended: sec(8), Stopping: true}}, 1},
		"killed as it was told": {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(gone)}, {Signal: kill, Ended: sec(9), Stopping: true}}, 0},
		"out of memory": {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(gone)},
			{Signal: kill, Ended: sec(5.1), Stopping: true, OOM: "oom_kill 1"}}, 1},
		"retries before its end": {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(gone)},
			{Signal: kill, Ended: sec(5.1), Tail: []string{"download: Connection reset by peer, trying again"}}}, 1},
		"a broken pipe":   {[]Death{{Signal: int(syscall.SIGPIPE), Ended: sec(5)}, {Exit: 9, Ended: sec(5.1)}}, 1},
		"somebody's TERM": {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(gone)}, {Signal: term, Ended: sec(5.1)}}, 1},

		// libraries that abort when they lose a peer
		"NCCL aborts": {[]Death{{Signal: abrt, Ended: sec(5), Tail: nccl},
			{Exit: 1, Ended: sec(6), Tail: raised(boom), Stopping: true}}, 1},
		"NCCL times out": {[]Death{{Signal: abrt, Ended: sec(5), Tail: timeout}, {Signal: kill, Ended: sec(6)}}, 1},
		"its own abort": {[]Death{{Signal: abrt, Ended: sec(5), Tail: []string{"train: loss.c:4: step: Assertion `x > 0' failed."}},
			{Exit: 1, Ended: sec(4), Tail: raised(gone)}}, 0},
		"ours, lost": {[]Death{
			{Exit: 1, Ended: sec(5),
				Tail: []string{"ddpbatch: all-reduce #7: rank 1: connection lost: its process ended without closing " +
					"its Comm, or was killed"}},
			{Exit: 11, Ended: sec(6), Tail: []string{"ddpbatch: a shard is corrupt"}}}, 1},
		"a Go program": {[]Death{{Exit: 2, Ended: sec(6), Tail: []string{"panic: index out of range [3]", "", "goroutine 1 [running]:"}},
			{Exit: 1, Ended: sec(5), Tail: []string{"read tcp 10.0.0.1:5: connection reset by peer"}}}, 0},

		"the peer was told to stop": {[]Death{{Signal: term, Ended: sec(8), Stopping: true},
			{Exit: 1, Ended: sec(6), Tail: raised(gone)}, {Exit: 1, Ended: sec(5), Tail: raised(reset)}}, 2},
		"the peer ends well later": {[]Death{{Ended: sec(7)}, {Exit: 1, Ended: sec(6), Tail: raised(gone)}}, 1},

		"all lost a peer": {[]Death{{Exit: 1, Ended: sec(6), Tail: raised(gone)}, {Exit: 1, Ended: sec(5), Tail: raised(reset)}}, 1},

		"what NCCL says on its second line": {[]Death{
			{Signal: abrt, Ended: sec(5), Tail: []string{"  what():  NCCL error in: ../ProcessGroupNCCL.cpp:1269, NCCL version 2.18.1",
				"Last error:", "socketProgress: Connection closed by remote peer n2<41324>"}},
			{Exit: 9, Ended: sec(5.5)}}, 1},
		"what other lines say long after the exception": {[]Death{
			{Exit: 1, Ended: sec(5), Tail: append(raised(boom, "", "", "", "", "", "", ""), "wandb: upload: Connection reset by peer")},
			{Exit: 1, Ended: sec(5.1), Tail: raised(boom)}}, 0},

		// what happens long after the first failure does not count
		"told, and breaks a minute later": {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(gone)},
			{Signal: segv, Ended: sec(66), Stopping: true}}, 0},
		"fails while it is stopped": {[]Death{{Exit: 9, Ended: sec(5)}, {Exit: 1, Ended: sec(5.2), Tail: raised(boom), Stopping: true}}, 0},
		"told for a reason that comes late": {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(boom), Stopping: true},
			{Exit: 9, Ended: sec(5.1)}}, 1},
		"interrupted": {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(gone)},
			{Exit: 1, Ended: sec(5.2), Tail: raised("KeyboardInterrupt"), Stopping: true}}, 0},
		"told by torch's own handler": {[]Death{{Exit: 1, Ended: sec(5), Tail: raised(gone)},
			{Exit: 1, Ended: sec(5.2),
				Tail: raised("torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15"), Stopping: true}},
			0},

		// exit code 75: the rank saved and asks to be started again
		"asked, beside a failure": {[]Death{{Exit: 75, Ended: sec(5)}, {Exit: 1, Ended: sec(7)}}, 1},
		"asked, beside the told":  {[]Death{{Exit: 75, Ended: sec(5)}, {Signal: term, Ended: sec(6), Stopping: true}}, 1},
		"all asked":               {[]Death{{Exit: 75, Ended: sec(5)}, {Exit: 75, Ended: sec(4)}, {}}, 1},

		// the times in PyTorch's error files are those of the exceptions
		"raised earlier, ended later": {[]Death{{Exit: 1, Ended: sec(5), Host: "a", ErrorFile: file("KeyError: 'x'", 5)},
			{Exit: 1, Ended: sec(8), Host: "a", ErrorFile: file(boom, 4)}}, 1},
		"within what clocks differ": {[]Death{{Exit: 1, Ended: sec(5), Host: "a", ErrorFile: file("KeyError: 'x'", 5)},
			{Exit: 1, Ended: sec(8), Host: "b", ErrorFile: file(boom, 4)}}, 0},
		"raised earlier on another host": {[]Death{{Exit: 1, Ended: sec(5), Host: "a", ErrorFile: file("KeyError: 'x'", 5)},
			{Exit: 1, Ended: sec(8), Host: "b", ErrorFile: file(boom, 3)}}, 1},
		"a clock that is wrong": {[]Death{{Exit: 1, Ended: sec(5), Host: "a", ErrorFile: file("KeyError: 'x'", 5)},
			{Exit: 1, Ended: sec(80), Host: "b", ErrorFile: file(boom, -9999)}}, 0},
		"who lost it first": {[]Death{{Exit: 1, Ended: sec(5), Host: "a", ErrorFile: file(gone, 5)},
			{Exit: 1, Ended: sec(6), Host: "a", ErrorFile: file(reset, 3)}}, 1},
		"who lost a peer earlier is none": {[]Death{{Exit: 1, Ended: sec(5), Host: "a", ErrorFile: file(gone, 2)},
			{Exit: 1, Ended: sec(6), Host: "a", ErrorFile: file(boom, 5)}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tc.deaths {
				tc.deaths[i].Rank = i
			}
			if got := Choose(tc.deaths); got != tc.want {
				t.Errorf("rank %d is named, want %d", got, tc.want)
			}
		})
	}
}

func labelled(rank int, lines []string) []string {
	var all []string
	for _, line := range lines {
		all = append(all, fmt.Sprintf("[rank%d]: %s", rank, line))
	}
	return all
}

// The rank that Choose names does not depend on the order of the list. If any rank has failed, the named one has, and it did not follow
// another.
func TestChooseDoesNotDependOnTheOrder(t *testing.T) {
	tails := [][]string{nil, raised(gone), raised(boom), during(raised(boom), raised(gone)), {"words"}, raised("KeyboardInterrupt"),
		{"Traceback (most recent call last):"}}
	rapid.Check(t, func(rt *rapid.T) {
		deaths := make([]Death, rapid.IntRange(0, 8).Draw(rt, "n"))
		for i := range deaths {
			d := Death{
				Rank: i, Host: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "host"),
				Exit:     rapid.SampledFrom([]int{0, 0, 1, 75, 9}).Draw(rt, "exit"),
				Ended:    sec(float64(rapid.IntRange(0, 30).Draw(rt, "heard"))),
				Stopping: rapid.Bool().Draw(rt, "told"), Tail: rapid.SampledFrom(tails).Draw(rt, "tail"),
			}
			if d.Exit == 0 {
				d.Signal = rapid.SampledFrom([]int{0, kill, term, segv, abrt}).Draw(rt, "signal")
			}
			if rapid.Bool().Draw(rt, "file") {
				d.ErrorFile = file(rapid.SampledFrom([]string{boom, gone}).Draw(rt, "error"), rapid.Int64Range(0, 30).Draw(rt, "at"))
			}
			deaths[i] = d
		}
		got := Choose(deaths)
		failures := slices.ContainsFunc(deaths, func(d Death) bool { return d.failed() && !d.asked() })
		switch {
		case got < 0 && slices.ContainsFunc(deaths, Death.failed):
			rt.Fatal("nobody is named")
		case got >= 0 && !deaths[got].failed(), got >= 0 && failures && deaths[got].asked():
			rt.Fatalf("%+v is not a failure", deaths[got])
		}
		followed := Followed(deaths, got)
		for i, f := range followed {
			if f && (i == got || !deaths[i].failed()) {
				rt.Fatalf("rank %d followed", i)
			}
		}
		mixed := slices.Clone(deaths)
		rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if again := Choose(mixed); (got < 0) != (again < 0) || got >= 0 && mixed[again].Rank != deaths[got].Rank {
			rt.Fatalf("rank %d, and in another order %d", deaths[got].Rank, mixed[again].Rank)
		}
		if text := Report(deaths, got, "it ends"); !strings.HasSuffix(text, "next: it ends\n") {
			rt.Fatalf("report is %q", text)
		}
	})
}

func TestFollowed(t *testing.T) {
	deaths := []Death{
		{Exit: 1, Tail: raised(boom)}, {Exit: 1, Tail: raised(gone)}, {Exit: 1, Tail: raised(boom)},
		{Signal: term, Stopping: true}, {}, {Exit: 75},
		{Exit: 1, Tail: raised(boom), Stopping: true},
	}
	if got, want := Followed(deaths, 0), []bool{false, true, false, true, false, true, true}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
