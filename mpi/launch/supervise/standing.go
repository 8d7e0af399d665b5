package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/launch/stack"
)

const (
	maxStacks = 256 << 10 // bytes of each stream of a worker that are kept while it is asked for its stacks
	maxFlight = 1 << 20   // bytes that are read at the end of a flight record
	maxPlace  = 300       // bytes of each part of a rank's standing

	caughtUp = 50 // how often to look for what was written, once every lookForWords
)

// keepOutput begins to keep what the worker writes, and returns a function that returns it: see watch.Dumper.
func (w *worker) keepOutput() func() string {
	if w.errs == nil {
		return nil
	}
	w.errs.Keep(maxStacks)
	w.out.Keep(maxStacks) // a shell may have merged the two
	return func() string {
		for looks := 0; looks < caughtUp && !(w.errs.CaughtUp() && w.out.CaughtUp()); looks++ {
			time.Sleep(lookForWords)
		}
		return w.errs.Kept() + "\n" + w.out.Kept()
	}
}

// standing is where the worker is, according to the stacks of its processes and its flight record.
func (w *worker) standing(processes []stack.Process) stack.Standing {
	s := stack.Stand(processes)
	if w.files.flight != "" {
		if record, err := readEnd(w.files.flight, maxFlight); err == nil {
			s = s.Flight(record)
		}
	}
	for _, part := range []*string{&s.Call, &s.Line, &s.Helper, &s.Last} {
		*part = text.Shortened(text.Clean(strings.ToValidUTF8(*part, "?")), maxPlace)
	}
	return s
}

// readEnd reads the last bytes of a regular file.
func readEnd(path string, limit int64) (end []byte, err error) {
	f, info, err := vfs.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// namedByStacks is the verdict of a hang once the agents have reported where its ranks are.
func (s *Supervisor) namedByStacks(v rundir.Verdict) rundir.Verdict {
	found := stacksOf(s.reports)
	for i := range s.hung.ranks {
		s.hung.ranks[i].standing = found[s.hung.ranks[i].Rank].Standing
	}
	s.hung.compareStandings()
	named := s.cfg.hangOutcome(s.hung, v.Time)
	named.Time = v.Time
	return named
}

// compareStandings decides which ranks are to blame by where all of them are: those that did not come to the call in which the
// others wait; or else those in another call than most; or else those at another line than most. If none of these applies, the
// previous decision stays. A stopped rank stays to blame: it waits for no other, wherever it is.
func (h *hang) compareStandings() {
	waiting, others := divide(h.ranks,
		func(r silentRank) bool { return r.standing.Call != "" && !r.Condition.Stopped && !r.Condition.Held })
	absent, _ := divide(others, func(r silentRank) bool { return r.standing.Line != "" || r.evidence() > 0 || r.Condition.File != "" })
	switch {
	case h.ranks[0].Condition.Stopped:
		if len(waiting) > 0 {
			h.where = waitText(waiting)
		}
	case len(waiting) > 0 && len(absent) > 0:
		h.name(absent, fmt.Sprintf("%s did not come: %s, while %s", whoText(absent), standText(absent), waitText(waiting)))
	case len(waiting) > 1 && len(waiting) == len(h.ranks):
		h.compareCalls()
	case len(waiting) == 0 && len(others) > 1 && !slices.ContainsFunc(others, func(r silentRank) bool { return r.standing.Line == "" }):
		h.compareLines()
	}
}

// name blames some ranks because of their stacks.
func (h *hang) name(ranks []silentRank, where string) {
	is := func(r silentRank) bool {
		return slices.ContainsFunc(ranks, func(n silentRank) bool { return n.Rank == r.Rank })
	}
	named, others := divide(h.ranks, is)
	h.ranks, h.named, h.why, h.where = slices.Concat(named, others), len(named), "by its stacks", where
}

// compareCalls is for ranks that all wait in calls of their group: they do not wait for one of them, but for something that will not come.
func (h *hang) compareCalls() {
	h.inCalls = true
	groups := groupBy(h.ranks, func(r silentRank) string { return r.standing.Call })
	if len(groups) == 1 {
		h.where = fmt.Sprintf("all %d ranks wait in %s: none is missing, so what they pass may differ between them in shape or type, "+
			"or the network between them is cut", len(h.ranks), callsText(h.ranks))
		h.named, h.why = len(h.ranks), ""
		return
	}
	inCalls := eachText(groups, func(g []silentRank) string { return "in " + callsText(g) })
	where := "the ranks wait in different calls: " + strings.Join(inCalls, ", ")
	if len(groups[0]) > len(h.ranks)/2 {
		h.name(slices.Concat(groups[1:]...), where)
		return
	}
	h.where, h.named, h.why = where, len(h.ranks), ""
}

// compareLines is for ranks that are not known to wait for others: those at another line than most may be what the others wait for.
func (h *hang) compareLines() {
	groups := groupBy(h.ranks, func(r silentRank) string { return r.standing.Line })
	if len(groups) < 2 || len(groups[0]) <= len(h.ranks)/2 || len(groups[0]) < 2 {
		return
	}
	odd := slices.Concat(groups[1:]...)
	most := groups[0]
	h.name(odd, fmt.Sprintf("%s: %s, while %s stand at %s", whoText(odd), standText(odd), ranksText(most), most[0].standing.Line))
}

func divide(ranks []silentRank, fits func(silentRank) bool) (yes, no []silentRank) {
	for _, r := range ranks {
		if fits(r) {
			yes = append(yes, r)
		} else {
			no = append(no, r)
		}
	}
	return yes, no
}

// groupBy groups ranks by a text: the largest group first, and of equal ones that of the lowest rank. The ranks of a group are in
// order.
func groupBy(ranks []silentRank, of func(silentRank) string) [][]silentRank {
	by := map[string][]silentRank{}
	for _, r := range ranks {
		by[of(r)] = append(by[of(r)], r)
	}
	groups := slices.Collect(maps.Values(by))
	for _, g := range groups {
		slices.SortFunc(g, func(a, b silentRank) int { return cmp.Compare(a.Rank, b.Rank) })
	}
	slices.SortFunc(groups, func(a, b []silentRank) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0].Rank, b[0].Rank))
	})
	return groups
}

// ranksText is "rank 3", or "ranks 0-2".
func ranksText(ranks []silentRank) string {
	var numbers []int
	for _, r := range ranks {
		numbers = append(numbers, r.Rank)
	}
	slices.Sort(numbers)
	if len(numbers) == 1 {
		return fmt.Sprintf("rank %d", numbers[0])
	}
	return "ranks " + blame.Ranges(numbers)
}

// whoText is ranksText, with the host if they have one in common.
func whoText(ranks []silentRank) string {
	who := ranksText(ranks)
	if host := (&hang{ranks: ranks, named: len(ranks)}).host(); host != "" {
		who += " on " + host
	}
	return who
}

const maxGroups = 4 // the most groups in a message

// eachText describes each group: "rank 1 in broadcast".
func eachText(groups [][]silentRank, of func([]silentRank) string) []string {
	var parts []string
	for i, g := range groups {
		if i == maxGroups {
			return append(parts, "and others elsewhere")
		}
		parts = append(parts, ranksText(g)+" "+of(g))
	}
	return parts
}

// waitText describes in which calls ranks wait: "ranks 0-2 wait in all_reduce (train.py:31 in step)".
func waitText(ranks []silentRank) string {
	return strings.Join(eachText(groupBy(ranks, func(r silentRank) string { return r.standing.Call }), func(g []silentRank) string {
		if len(g) == 1 {
			return "waits in " + callsText(g)
		}
		return "wait in " + callsText(g)
	}), ", ")
}

// callsText is the call of ranks in the same call, and the lines from which they have called it.
func callsText(ranks []silentRank) string {
	groups := groupBy(ranks, func(r silentRank) string { return r.standing.Line })
	call := groups[0][0].standing.Call
	switch {
	case len(groups) > 1:
		lines := eachText(groups, func(g []silentRank) string { return "at " + cmp.Or(g[0].standing.Line, "a line that is not known") })
		return call + " (" + strings.Join(lines, ", ") + ")"
	case groups[0][0].standing.Line == "":
		return call
	}
	return call + " (" + groups[0][0].standing.Line + ")"
}

// standText describes where ranks are that did not come.
func standText(ranks []silentRank) string {
	groups := groupBy(ranks, silentRank.stands)
	if len(groups) == 1 && len(ranks) == 1 {
		return "it stands " + groups[0][0].stands()
	} else if len(groups) == 1 {
		return "they stand " + groups[0][0].stands()
	}
	return strings.Join(eachText(groups, func(g []silentRank) string { return "stands " + g[0].stands() }), ", ")
}

// stands describes where a rank is that does not wait in a call of its group.
func (r silentRank) stands() string {
	var parts []string
	if r.standing.Line != "" {
		parts = append(parts, "at "+r.standing.Line)
	}
	if r.standing.Helper != "" {
		parts = append(parts, "and waits for "+r.standing.Helper)
	}
	if r.Condition.Held || r.Condition.Sleeps || r.Condition.File != "" || len(parts) == 0 {
		parts = append(parts, r.Condition.Text)
	}
	if r.standing.Last != "" {
		parts = append(parts, "after "+r.standing.Last)
	}
	return strings.Join(parts, ", ")
}

// place describes where a rank is, for a report.
func (r silentRank) place() string {
	switch s := r.standing; {
	case s.Call != "" && s.Line != "":
		return fmt.Sprintf("%s, waits in %s (%s)", r.Condition.Text, s.Call, s.Line)
	case s.Call != "":
		return fmt.Sprintf("%s, waits in %s", r.Condition.Text, s.Call)
	case s.Line != "" && s.Helper != "":
		return fmt.Sprintf("%s, at %s, waits for %s", r.Condition.Text, s.Line, s.Helper)
	case s.Line != "":
		return fmt.Sprintf("%s, at %s", r.Condition.Text, s.Line)
	}
	return r.Condition.Text
}
