package distributed

import (
	"context"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

func TestDeltaSchedule(t *testing.T) {
	t.Parallel()
	c, m := newDeltaSchedule(), mode{Delta: 2, Copies: 2}
	type step struct {
		copy, base int
		full, ok   bool
	}
	for i, want := range []step{
		{0, -1, true, true}, {1, 0, false, true}, {1, 0, false, true}, // two deltas
		{1, 0, true, true}, {0, 1, false, true}, // a full save into the other copy, and a delta of it
		{0, 1, false, false}, {0, -1, true, true}, // after a failed delta, the next save is full
	} {
		copy, base, full := c.next(m)
		if copy != want.copy || base != want.base || full != want.full {
			t.Fatalf("save %d: copy %d base %d full %v, want %+v", i, copy, base, full, want)
		}
		c.done(&job{copy: copy, full: full}, want.ok)
	}
}

func TestModeFitsMemory(t *testing.T) {
	t.Parallel()
	loads := plan{{Cuts: []cut{{0, 0, 100}, {1, 100, 200}}}}.loads(2)
	ask := func(async bool, delta int, local bool, caps ...int64) mode {
		var all []hello
		for _, c := range caps {
			all = append(all, hello{Options: sharedOptions{Async: async, Delta: delta, Local: local}, MaxMemory: c, Encode: 10})
		}
		return chooseMode(loads, all)
	}
	for _, test := range []struct {
		name      string
		got, want mode
	}{
		{"no cap", ask(true, 3, false, 0, 0), mode{Async: true, Delta: 3, Copies: 2}},
		{"just enough", ask(true, 3, false, 210, 410), mode{Async: true, Delta: 3, Copies: 2}},
		{"no deltas", ask(true, 3, false, 0, 409), mode{Async: true, Copies: 1, Rank: 1, Needs: 410, Cap: 409}},
		{"no copy", ask(true, 3, false, 0, 209), mode{Rank: 1, Needs: 210, Cap: 209}},
		{"rank 0 has little", ask(true, 0, false, 109, 0), mode{Rank: 0, Needs: 110, Cap: 109}},
		{"synchronous needs none", ask(false, 0, false, 10, 10), mode{}},
		{"too little to encode", ask(false, 0, false, 10, 9), mode{Rank: 1, Needs: 10, Cap: 9, Over: true}},
		{"too little for anything", ask(true, 3, false, 0, 9), mode{Rank: 1, Needs: 10, Cap: 9, Over: true}},
		{"deltas need copies", ask(false, 1, false, 0, 409), mode{Rank: 1, Needs: 410, Cap: 409}},
		{"local tier", ask(true, 3, true, 0, 0), mode{Async: true, Copies: 1, Lifted: true}},
	} {
		if test.got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, test.got, test.want)
		}
	}
}

// Encoding takes 5 MiB for each encoder, and 1 MiB in addition for all of them.
func TestEncoders(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ workers, memory, want int }{
		{4, 0, 4}, {4, 21 << 20, 4}, {4, 21<<20 - 1, 3}, {4, 11 << 20, 2}, {4, 6 << 20, 1}, {4, 6<<20 - 1, 0}, {1, 1 << 40, 1}, {1, 1, 0},
	} {
		got, least := Options{Workers: test.workers, MaxMemory: int64(test.memory)}.Encoders()
		if got != test.want || least != 6<<20 {
			t.Errorf("%d workers and %d bytes: %d encoders, the first takes %d bytes; want %d and 6 MiB", test.workers,
				test.memory, got, least, test.want)
		}
	}
}

// Rank 0 reports too little memory once, with both numbers, and no other rank does, although rank 1 is the one that has too little.
func TestTooLittleMemoryIsReportedOnce(t *testing.T) {
	t.Parallel()
	_, fs := newDisk(t)
	var journal testkit.Journal
	m := newGoroutineGroup(2)
	mustAll(t, testkit.Each(2, func(rank int) error {
		tr := trial{world: 2, attempt: 1,
			o: Options{Async: true, MaxMemory: int64(rank) * (6<<20 + 1000), Workers: 1, Log: journal.Logger()}, fs: fs}
		return tr.rank(t.Context(), m.member(rank), func(ctx context.Context, r *one) error { return r.save(ctx, 1) })
	}))
	// The arrays of rank 1 take half of the 20,666 shared bytes, cut at the nearest page, and 1,001 bytes of its own. Encoding takes 6 MiB.
	log := journal.String()
	if strings.Count(log, "more memory than allowed") != 1 || !strings.Contains(log, "max_bytes=6292456") ||
		!strings.Contains(log, "rank=1") ||
		!strings.Contains(log, "synchronous saving") {
		t.Errorf("log: %s", log)
	}
}
