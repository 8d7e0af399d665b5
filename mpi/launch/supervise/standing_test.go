package supervise

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/launch/stack"
	"ddpbatch/mpi/launch/watch"
)

// If all ranks fell silent together, only their stacks decide which of them are named.
func TestStandingsNameWhoDidNotCome(t *testing.T) {
	type ranks []stack.Standing // even ranks are on n1, odd ones on n2
	waits := func(call, line string) stack.Standing { return stack.Standing{Call: call, Line: line} }
	at := func(line string) stack.Standing { return stack.Standing{Line: line} }
	reduce, load := waits("all_reduce", "train.py:31 in step"), at("data.py:12 in load")
	stopped := watch.Condition{Stopped: true, Text: "stopped by a signal (SIGSTOP)"}
	held := watch.Condition{Held: true, File: "/data/x", Text: "held by a disk, a file server or a device, in read of /data/x"}
	for name, tc := range map[string]struct {
		ranks   ranks
		where   map[int]watch.Condition
		first   int
		nodes   []string
		message string
	}{
		"one did not come": {ranks{reduce, load, reduce, reduce}, nil, 1, []string{"n2"},
			"rank 1 on n2 did not come: it stands at data.py:12 in load, while ranks 0, 2-3 wait in all_reduce (train.py:31 in step); " +
				"none of them gave a sign of life for 30m0s (no heartbeat, no output, no CPU time)"},
		"two did not come": {ranks{reduce, load, reduce, load}, nil, -1, []string{"n2"},
			"ranks 1, 3 on n2 did not come: they stand at data.py:12 in load, while ranks 0, 2 wait in all_reduce"},
		"two, at two lines": {ranks{reduce, load, at("train.py:9"), reduce}, nil, -1, nil,
			"ranks 1-2 did not come: rank 1 stands at data.py:12 in load, rank 2 stands at train.py:9, while " +
				"ranks 0, 3 wait in all_reduce"},
		"one reads a file": {ranks{reduce, load}, map[int]watch.Condition{1: held}, 1, []string{"n2"},
			"rank 1 on n2 did not come: it stands at data.py:12 in load, held by a disk, a file server or a device, in read of /data/x, " +
				"while rank 0 waits in all_reduce (train.py:31 in step); "},
		"one that is held has not answered": {ranks{reduce, {}}, map[int]watch.Condition{1: held}, 1, []string{"n2"},
			"rank 1 on n2 did not come: it stands held by a disk, a file server or a device, in read of /data/x, while rank 0 waits"},
		"one waits for its data loader": {ranks{reduce, {Line: "train.py:30 in step", Helper: "process 71 at data.py:12 in load"}},
			nil, 1, []string{"n2"},
			"it stands at train.py:30 in step, and waits for process 71 at data.py:12 in load, while"},
		"one of ours": {ranks{waits("all_reduce #17 float32 x 4 sum", "step.go:9 in Finish"),
			{Line: "loader.go:7 in Next", Last: "all_reduce #16 float32 x 4 sum"}}, nil, 1, []string{"n2"},
			"it stands at loader.go:7 in Next, after all_reduce #16 float32 x 4 sum, while rank 0 waits in all_reduce #17 float32 x " +
				"4 sum (step.go:9 in Finish)"},
		"nobody knows where the others are": {ranks{reduce, {}, {}}, nil, -1, nil, "which of them went quiet first is not known"},
		"nobody knows where one other is":   {ranks{reduce, {}, load}, nil, 2, []string{"n1"}, "rank 2 on n1 did not come"},
		"other order": {ranks{reduce, waits("broadcast", "train.py:5"), reduce}, nil, 1, nil,
			"the ranks wait in different calls: ranks 0, 2 in all_reduce (train.py:31 in step), rank 1 in broadcast " +
				"(train.py:5); none of them gave"},
		"other order, of two": {ranks{reduce, waits("broadcast", "train.py:5")}, nil, -1, nil,
			"the ranks wait in different calls: rank 0 in all_reduce (train.py:31 in step), rank 1 in broadcast (train.py:5); "},
		"all in one call": {ranks{reduce, reduce, reduce}, nil, -1, nil,
			"all 3 ranks wait in all_reduce (train.py:31 in step): none is missing, so what they pass may differ"},
		"in one call, at two lines": {ranks{reduce, waits("all_reduce", "train.py:7")}, nil, -1, nil,
			"all 2 ranks wait in all_reduce (rank 0 at train.py:31 in step, rank 1 at train.py:7): none is missing"},
		"three calls and one missing": {ranks{reduce, waits("barrier", "a.py:1"), reduce, load}, nil, 3, []string{"n2"},
			"while ranks 0, 2 wait in all_reduce (train.py:31 in step), rank 1 waits in barrier (a.py:1)"},
		"one is elsewhere": {ranks{at("train.py:8"), load, at("train.py:8")}, nil, 1, []string{"n2"},
			"rank 1 on n2: it stands at data.py:12 in load, while ranks 0, 2 stand at train.py:8; none of them gave"},
		"two at two lines":   {ranks{at("train.py:8"), load}, nil, -1, nil, "which of them went quiet first is not known"},
		"all at one line":    {ranks{load, load, load}, nil, -1, nil, "which of them went quiet first is not known"},
		"nobody was asked":   {ranks{{}, {}}, nil, -1, nil, "which of them went quiet first is not known"},
		"the only one":       {ranks{load}, nil, 0, []string{"n1"}, "rank 0 on n1 gave no sign of life for 30m0s"},
		"the only one waits": {ranks{reduce}, nil, 0, []string{"n1"}, "rank 0 on n1 gave no sign of life for 30m0s"},
		"one is stopped": {ranks{reduce, load, reduce}, map[int]watch.Condition{1: stopped}, 1, []string{"n2"},
			"rank 1 on n2 was stopped (SIGSTOP) and gave no sign of life for 30m0s (no heartbeat, no output, no CPU time), of 3 ranks " +
				"that went quiet; ranks 0, 2 wait in all_reduce (train.py:31 in step)"},
		"one is stopped in a call": {ranks{reduce, reduce, reduce}, map[int]watch.Condition{1: stopped}, 1, []string{"n2"},
			"of 3 ranks that went quiet; ranks 0, 2 wait in all_reduce"},
	} {
		now := time.Unix(100_000, 0)
		found := map[int]endsReport{0: {}}
		var silent []silentRank
		for rank, s := range tc.ranks {
			condition := watch.Condition{Text: "in futex"}
			if c, ok := tc.where[rank]; ok {
				condition = c
			}
			q := quietRank{Rank: rank, Host: []string{"n1", "n2"}[rank%2], For: 1800 * time.Second, Condition: condition}
			silent = append(silent, silentRank{quietRank: q, since: now.Add(-q.For)})
			r := found[0]
			r.Stacks = append(r.Stacks, stacks{Rank: rank, Standing: s})
			found[0] = r
		}
		s := &Supervisor{cfg: Config{World: rendezvous.World{Host: "n0"}}, hung: newHang(silent, time.Second), reports: found}
		v := s.cfg.hangOutcome(s.hung, now)
		v.Time = now
		v = s.namedByStacks(s.namedByStacks(v)) // it may be called twice
		if v.Cause != "hang" || v.FirstRank != tc.first || !slices.Equal(v.Nodes, tc.nodes) || !strings.Contains(v.Message, tc.message) {
			t.Errorf("%s: first %d, nodes %v: %s", name, v.FirstRank, v.Nodes, v.Message)
		}
		if len(s.hung.ranks) != len(tc.ranks) {
			t.Errorf("%s: %d ranks are reported", name, len(s.hung.ranks))
		}
	}
}

// Only the end of a flight record is read, and only if it is a regular file. The worker writes it, so it may have any length, and must not
// make the agent wait.
func TestOnlyTheEndOfARecordIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flight")
	must(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	for limit, want := range map[int64]string{4: "6789", 10: "0123456789", 100: "0123456789"} {
		if got, err := readEnd(path, limit); err != nil || string(got) != want {
			t.Errorf("%d bytes: %q, %v", limit, got, err)
		}
	}
	if _, err := readEnd("/dev/zero", 4); err == nil {
		t.Error("a device was read")
	}
}
