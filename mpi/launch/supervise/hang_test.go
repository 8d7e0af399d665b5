package supervise

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/launch/watch"
)

// TestUnknownHeartbeats checks that a worker that has beaten before does not count as hung while the heartbeat files cannot be read.
func TestUnknownHeartbeats(t *testing.T) {
	before := time.Now()
	got := unknown([]heartbeat{{}, {at: before.Add(-time.Hour), known: true}})
	if got[0] != (heartbeat{}) || got[1].at.Before(before) || got[1].known {
		t.Errorf("got %+v", got)
	}
}

// A hung worker that ignores TERM gets only hangGrace before KILL.
func TestHungWorkersHaveLittleTime(t *testing.T) {
	c := complete(Config{World: rendezvous.World{Count: 1, Host: "n1", Nproc: 1}, Limits: Limits{Grace: time.Hour}})
	s := &Supervisor{cfg: c}
	s.stopFor(c.Verdict(causeHang, 1, "hung"))
	if got := <-s.dumped; len(got) != 0 {
		t.Errorf("stacks of no worker: %+v", got)
	}
	if s.cfg.Grace != hangGrace || s.stop.stage != running {
		t.Errorf("grace is %v, stage %v: TERM comes after the stacks", s.cfg.Grace, s.stop.stage)
	}
}

// newHang decides which ranks are named by how long ago they fell silent.
func TestHangNamesTheRanksThatFellSilentFirst(t *testing.T) {
	now := time.Unix(100_000, 0)
	asleep, waits := watch.Condition{Sleeps: true, Text: "asleep"}, watch.Condition{Text: "in futex"}
	stopped, held := watch.Condition{Stopped: true, Text: "stopped by a signal (SIGSTOP)"},
		watch.Condition{Held: true, Text: "held by a disk"}
	at := func(rank int, host string, ago time.Duration, condition watch.Condition) silentRank {
		ago *= time.Second
		return silentRank{quietRank: quietRank{Rank: rank, Host: host, For: ago, Condition: condition},
			agent: int(host[1] - '0'), since: now.Add(-ago)}
	}
	// reported by an agent that looked some seconds before the others (in task mode, each rank has an agent)
	earlier := func(looked time.Duration, agent int, r silentRank) silentRank {
		r.agent, r.For = agent, r.For-looked*time.Second
		return r
	}
	for name, tc := range map[string]struct {
		ranks   []silentRank
		rank    int
		host    string
		message string
	}{
		"the only one": {[]silentRank{at(0, "n1", 1800, waits)}, 0, "n1",
			"rank 0 on n1 gave no sign of life for 30m0s (no heartbeat, no output, no CPU time)"},
		"first of a node": {[]silentRank{at(0, "n1", 1800, asleep), at(1, "n1", 1815, waits)}, 1, "n1",
			"rank 1 on n1 gave no sign of life for 30m15s (no heartbeat, no output, no CPU time): the first of 2 ranks to go quiet"},
		"first of two nodes": {[]silentRank{at(0, "n1", 1800, asleep), at(1, "n2", 1816, waits)}, 1, "n2",
			"rank 1 on n2 gave no sign of life for 30m16s (no heartbeat, no output, no CPU time): the first of 2 ranks to go quiet"},
		"together": {[]silentRank{at(0, "n1", 1800, waits), at(1, "n1", 1800, waits)}, -1, "",
			"ranks 0-1 on n1 gave no sign of life for 30m0s (no heartbeat, no output, no CPU time): which of them went " +
				"quiet first is not known"},
		"too close on two": {[]silentRank{at(0, "n1", 1800, waits), at(1, "n2", 1814, waits)}, -1, "",
			"ranks 0-1 gave no sign of life for 30m0s (no heartbeat, no output, no CPU time): which of them went " +
				"quiet first is not known"},
		"together on a node": {[]silentRank{at(0, "n1", 1800, waits), at(1, "n2", 1830, waits),
			at(2, "n2", 1830, waits)}, -1, "n2",
			"ranks 1-2 on n2 gave no sign of life for 30m30s (no heartbeat, no output, no CPU time): the first of 3 " +
				"ranks to go quiet, together"},
		"one sleeps": {[]silentRank{at(0, "n1", 1814, waits), at(1, "n2", 1800, asleep)}, 1, "n2",
			"rank 1 on n2 gave no sign of life for 30m0s (no heartbeat, no output, no CPU time): asleep, of 2 ranks that went quiet"},
		"one is stopped": {[]silentRank{at(0, "n1", 1814, asleep), at(1, "n2", 1800, stopped),
			at(2, "n2", 1800, held)}, 1, "n2",
			"rank 1 on n2 was stopped (SIGSTOP) and gave no sign of life for 30m0s (no heartbeat, no output, no CPU time), " +
				"of 3 ranks that went quiet"},
		"one is stopped, and reported late": {[]silentRank{at(0, "n1", 1815, asleep), at(1, "n2", 1800, stopped)},
			1, "n2", "was stopped"},
		"one is stopped, and reported very late": {[]silentRank{at(0, "n1", 7400, asleep), at(1, "n2", 4000, stopped)},
			1, "n2", "was stopped"},
		"two are stopped": {[]silentRank{at(0, "n1", 1800, stopped), at(1, "n1", 1800, stopped),
			at(2, "n1", 1800, waits)}, -1, "n1", "ranks 0-1 on n1 were stopped (SIGSTOP) and gave no sign of life for 30m0s"},
		"the first one is held": {[]silentRank{at(0, "n1", 1800, waits), at(1, "n1", 1800, held)}, 1, "n1",
			": held by a disk, of 2 ranks that went quiet"},
		"stopped later than another": {[]silentRank{at(0, "n1", 1800, stopped), at(1, "n1", 1815, waits)}, 0, "n1",
			"rank 0 on n1 was stopped (SIGSTOP) and gave no sign of life for 30m0s"},
		"all sleep": {[]silentRank{at(0, "n1", 1800, asleep), at(1, "n1", 1800, asleep)}, -1, "",
			"which of them went quiet first is not known"},
		"one of three sleeps": {[]silentRank{at(0, "n1", 1830, waits), at(1, "n1", 1830, waits),
			at(2, "n1", 1830, asleep), at(3, "n1", 1800, waits)}, 2, "n1", ": asleep, of 4 ranks that went quiet"},
		"of two agents on one node": {[]silentRank{at(0, "n1", 1814, waits), earlier(12, 7, at(1, "n1", 1813, stopped))}, 1,
			"n1", "rank 1 on n1 was stopped (SIGSTOP)"},
		"of two agents on one node, long apart": {[]silentRank{at(0, "n1", 1830, waits), earlier(12, 7, at(1, "n1", 1813, asleep))}, 0,
			"n1", "the first of 2 ranks"},
		"for a moment": {[]silentRank{at(0, "n1", 2, waits)}, 0, "n1", " for 2s ("},
	} {
		for range 2 {
			h := newHang(slices.Clone(tc.ranks), 15*time.Second)
			v := Config{World: rendezvous.World{Host: "n0"}}.hangOutcome(h, now)
			var nodes []string
			if tc.host != "" {
				nodes = []string{tc.host}
			}
			if v.Cause != "hang" || v.FirstRank != tc.rank || v.Host != tc.host || !slices.Equal(v.Nodes, nodes) ||
				!strings.Contains(v.Message, tc.message) {
				t.Errorf("%s: %+v", name, v)
			}
			var listed []int
			for _, r := range h.ranks {
				listed = append(listed, r.Rank)
			}
			if slices.Sort(listed); len(slices.Compact(listed)) != len(tc.ranks) {
				t.Errorf("%s: ranks %v are reported", name, listed)
			}
			slices.Reverse(tc.ranks) // the order in which agents report does not matter
		}
	}
}

func TestReportOfAHangNamesTheFirstSilent(t *testing.T) {
	now := time.Now()
	var ranks []silentRank
	for rank := range 20 {
		ago := time.Duration(2000-rank) * time.Second
		ranks = append(ranks, silentRank{quietRank: quietRank{Rank: rank, Host: "n1", For: ago,
			Condition: watch.Condition{Text: "in futex"}}, since: now.Add(-ago)})
	}
	got := newHang(ranks, time.Second).report("It hangs.", map[int]endsReport{
		0: {Stacks: []stacks{{Rank: 0, Path: "/logs/n1.0.stacks"}}},
		1: {Stacks: []stacks{{Rank: 1, Text: "process 7\n  thread 7\n"}}},
	})
	want := "It hangs.\n  rank 0 on n1: in futex; quiet 19s before the last\n    stacks: /logs/n1.0.stacks\n" +
		"  rank 1 on n1: in futex; quiet 18s before the last\n    | process 7\n    |   thread 7\n" +
		"  rank 2 on n1: in futex; quiet 17s before the last\n"
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "  rank 15 on n1: in futex; quiet 4s before the last\n  and 4 more\n") {
		t.Errorf("report is\n%s", got)
	}
}

// Stacks from a worker's program or from py-spy are cut, and cannot control a terminal.
func TestStacksAreCutAndTamed(t *testing.T) {
	got := beginning("\x1b[2Jevil\r\n" + strings.Repeat("é", 1000) + "\n" + strings.Repeat("line\n", 1000))
	if want := " [2Jevil \n" + strings.Repeat("é", stacksWidth) + "\nline\n"; !strings.HasPrefix(got, want) {
		t.Errorf("begins with %.300q", got)
	}
	if lines := strings.Count(got, "\n"); lines != stacksLines+1 {
		t.Errorf("%d lines", lines)
	}
}

func TestHangIsLookedForOftenEnough(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{
		time.Second: 125 * time.Millisecond, 4 * time.Second: 500 * time.Millisecond, 8 * time.Second: time.Second,
		20 * time.Second: time.Second, time.Minute: 3 * time.Second, 5 * time.Minute: 15 * time.Second, 30 * time.Minute: 15 * time.Second,
	} {
		if got := (Config{Limits: Limits{HangAfter: after}}).observeEvery(); got != want {
			t.Errorf("every %v where workers hang after %v, want %v", got, after, want)
		}
	}
}

// A file server that does not answer does not delay the agent: the previous heartbeats count.
func TestSilentFileServerDelaysNoRank(t *testing.T) {
	before := []heartbeat{{at: time.Unix(5, 0)}}
	h := &heartbeats{paths: []string{"/x"}, seen: before, answers: make(chan []heartbeat)}
	for range 2 {
		if got := h.look(); fmt.Sprint(got) != fmt.Sprint(before) {
			t.Errorf("seen was %v", got)
		}
	}
	late := []heartbeat{{at: time.Unix(9, 0)}}
	go func() { h.answers <- late }()
	if got := h.look(); fmt.Sprint(got) != fmt.Sprint(late) {
		t.Errorf("seen was %v, and the answer %v", got, late)
	}
}

// If all workers have ended, and an agent takes long to report that, no worker counts as hung.
func TestEndedWorkersDoNotHang(t *testing.T) {
	s := &Supervisor{round: &round{layout: twoMembers()}, hangWatch: &hangWatch{reports: map[int]quietReport{}}}
	for agent := range 2 {
		s.receiveQuiet(quietReport{quiet{Quiet: true}, agent, time.Now()})
	}
	if s.mine != nil {
		t.Errorf("proposed %+v", s.mine)
	}
}
