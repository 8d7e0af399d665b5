package supervise

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/pause"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/launch/stack"
	"ddpbatch/mpi/launch/watch"
)

// hang is what agent 0 knows about workers that hang.
type hang struct {
	ranks []silentRank  // in the order in which they fell silent
	named int           // how many at the beginning of ranks are to blame, as far as is known
	why   string        // why they are to blame; "": they fell silent before all others
	blur  time.Duration // within this time it is not known which of two agents' ranks fell silent first
	where string        // for whom the ranks wait, according to their stacks; "": not known

	inCalls bool // all ranks wait in calls of their group, so that no node is to blame
}

// silentRank is a quietRank with its time on agent 0's clock.
type silentRank struct {
	quietRank
	agent    int // the agent that reported it
	since    time.Time
	standing stack.Standing // according to its stacks, once those are known
}

// evidence is how strongly a rank's condition suggests that the others wait for it, rather than the other way round.
func (r silentRank) evidence() int {
	switch {
	case r.Condition.Stopped:
		return 3
	case r.Condition.Held:
		return 2
	case r.Condition.Sleeps:
		return 1
	}
	return 0
}

// newHang finds out which ranks fell silent first. For ranks of one agent, which observes them together, the order is exact. For
// ranks of two agents it is known to within the time between two observations, even if they are on one node.
//
// Ranks that wait for one another do so within one step, so among several that fell silent together their conditions decide. A
// stopped rank waits for no other. So it counts among the first however late its last sign of life was: signs come at intervals,
// and those of the ranks that wait for it may have been older.
func newHang(ranks []silentRank, blur time.Duration) *hang {
	slices.SortStableFunc(ranks, func(a, b silentRank) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(b.evidence(), a.evidence()), cmp.Compare(a.Rank, b.Rank))
	})
	first := ranks[0]
	together := func(r silentRank) bool {
		switch {
		case r.Condition.Stopped:
			return true
		case r.agent == first.agent:
			return r.For >= first.For
		}
		return r.since.Sub(first.since) < blur
	}
	var among, others []silentRank
	for _, r := range ranks {
		if together(r) {
			among = append(among, r)
		} else {
			others = append(others, r)
		}
	}
	slices.SortStableFunc(among, func(a, b silentRank) int {
		return cmp.Or(cmp.Compare(b.evidence(), a.evidence()), cmp.Compare(a.Rank, b.Rank))
	})
	h := &hang{ranks: slices.Concat(among, others), named: len(among), blur: blur}
	best := among[0].evidence()
	if at := slices.IndexFunc(among, func(r silentRank) bool { return r.evidence() < best }); at > 0 {
		h.named, h.why = at, among[0].Condition.Text
	}
	return h
}

// host is the host of the ranks to blame; "": there are several hosts.
func (h *hang) host() string {
	host := h.ranks[0].Host
	for _, r := range h.ranks[:h.named] {
		if r.Host != host {
			return ""
		}
	}
	return host
}

// since is when the last of the ranks to blame gave its last sign of life.
func (h *hang) since() time.Time {
	return slices.MaxFunc(h.ranks[:h.named], silentRank.compare).since
}

func (r silentRank) compare(other silentRank) int { return r.since.Compare(other.since) }

// hasEvidence reports whether something speaks against the named ranks, rather than nothing against any.
func (h *hang) hasEvidence() bool { return h.named == 1 || h.why != "" || len(h.ranks) > h.named }

// hangOutcome is the verdict that the workers hang, and whose fault that is, as far as is known.
func (c Config) hangOutcome(h *hang, now time.Time) rundir.Verdict {
	first := h.ranks[0]
	who, stopped := fmt.Sprintf("rank %d on %s", first.Rank, first.Host), ""
	if h.named > 1 {
		var ranks []int
		for _, r := range h.ranks[:h.named] {
			ranks = append(ranks, r.Rank)
		}
		who = "ranks " + blame.Ranges(ranks)
		if host := h.host(); host != "" {
			who += " on " + host
		}
	}
	if first.Condition.Stopped {
		stopped = "was stopped (SIGSTOP) and "
		if h.named > 1 {
			stopped = "were stopped (SIGSTOP) and "
		}
	}
	signs := "no heartbeat, no output, no CPU time"
	if first.Beats {
		signs = "no heartbeat, though there was one before"
	}
	message := fmt.Sprintf("%s %sgave no sign of life for %v (%s)%s", who, stopped, span(now.Sub(h.since())), signs, h.standing())
	if h.where != "" && stopped == "" {
		message = fmt.Sprintf("%s; none of them gave a sign of life for %v (%s)", h.where, span(now.Sub(h.since())), signs)
	} else if h.where != "" {
		message += "; " + h.where
	}
	v := c.Verdict(causeHang, exit.Failed, message)
	if h.hasEvidence() && !h.inCalls { // the next attempt excludes the host that the verdict of a hang names
		v.Host = h.host()
	}
	if v.Host != "" {
		v.Nodes = []string{v.Host}
	}
	if h.named == 1 {
		v.FirstRank = first.Rank
	}
	return v
}

// standing describes how the named ranks differ from the others.
func (h *hang) standing() string {
	all := len(h.ranks)
	switch {
	case all == 1:
		return ""
	case h.why != "" && h.ranks[0].Condition.Stopped: // the message has said so
		return fmt.Sprintf(", of %d ranks that went quiet", all)
	case h.why != "":
		return fmt.Sprintf(": %s, of %d ranks that went quiet", h.why, all)
	case h.named == all:
		return ": which of them went quiet first is not known"
	case h.named > 1:
		return fmt.Sprintf(": the first of %d ranks to go quiet, together", all)
	}
	return fmt.Sprintf(": the first of %d ranks to go quiet", all)
}

// span rounds a duration for people.
func span(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Truncate(100 * time.Millisecond)
	}
	return d.Truncate(time.Second)
}

// report describes for a person the ranks that hung, and where each was.
func (h *hang) report(message string, reports map[int]endsReport) string {
	const most = 16 // ranks
	found := stacksOf(reports)
	var b strings.Builder
	fmt.Fprintln(&b, message)
	last := slices.MaxFunc(h.ranks, silentRank.compare).since
	for i, r := range h.ranks {
		if i == most {
			fmt.Fprintf(&b, "  and %d more\n", len(h.ranks)-most)
			break
		}
		fmt.Fprintf(&b, "  rank %d on %s: %s", r.Rank, r.Host, r.place())
		if earlier := span(last.Sub(r.since)); earlier > 0 && earlier >= h.blur {
			fmt.Fprintf(&b, "; quiet %v before the last", earlier)
		}
		fmt.Fprintln(&b)
		b.WriteString(found[r.Rank].report())
	}
	return b.String()
}

const (
	stacksLimit = 8 * time.Second  // for the stacks of all workers of a node
	hangGrace   = 10 * time.Second // the most time between TERM and KILL of workers that hang

	stacksLines = 40 // lines in the report, for stacks without a file
	stacksWidth = 160
)

// stacks is what the threads of a worker that hung were doing just before it was ended.
type stacks struct {
	Rank int    `json:"rank"`
	Path string `json:"path,omitempty"` // the file; "": none
	Text string `json:"text,omitempty"` // the beginning of the stacks if there is no file, or what went wrong

	Standing stack.Standing `json:"standing,omitzero"` // what follows from the stacks
}

// stacksOf returns the stacks that agents have reported, by rank.
func stacksOf(reports map[int]endsReport) map[int]stacks {
	found := map[int]stacks{}
	for _, r := range reports {
		for _, one := range r.Stacks {
			found[one.Rank] = one
		}
	}
	return found
}

// dumpStacks has the stacks of this node's workers written down. That ends Go programs at once, and the others are ended when it is
// done.
func (s *Supervisor) dumpStacks() {
	if s.stop.stage >= signalled || s.dumped != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stacksLimit)
	var waiting []*worker
	for _, w := range s.workers {
		if w.ended.IsZero() {
			w.words = w.tail()
			waiting = append(waiting, w)
		}
	}
	if len(waiting) > 0 {
		s.cfg.Log.Warn("the run hangs, so ddpbatch asks the ranks for their stacks: a line \"Fatal Python error: Aborted\" is an answer",
			"ranks", len(waiting))
	}
	dumper := s.cfg.dumper()
	all := make(chan []stacks, 1)
	s.dumped = all
	go func() {
		defer cancel()
		all <- dumpAll(ctx, dumper, waiting)
	}()
}

func (c Config) dumper() watch.Dumper {
	path, err := c.lookPath("py-spy")
	if err != nil {
		return watch.Dumper{}
	}
	return watch.Dumper{PySpy: path}
}

// dumpAll returns the stacks that are known when ctx ends. It leaves goroutines behind for as long as the kernel, or the file
// system, does not answer.
func dumpAll(ctx context.Context, dumper watch.Dumper, workers []*worker) []stacks {
	done := make(chan stacks, len(workers))
	all := newGathering(len(workers))
	for _, w := range workers {
		go func() { done <- dump(ctx, dumper, w, all) }()
	}
	// A dump ends by itself when its time is over, unless its file cannot be written.
	timer := time.NewTimer(stacksLimit + time.Second)
	defer timer.Stop()
	var list []stacks
	for range workers {
		select {
		case one := <-done:
			list = append(list, one)
		case <-timer.C:
			return list
		}
	}
	return list
}

// gathering is a point at which several goroutines wait for each other.
type gathering struct {
	missing atomic.Int64
	whole   chan struct{} // closed when all have come
}

func newGathering(n int) *gathering {
	g := &gathering{whole: make(chan struct{})}
	g.missing.Store(int64(n))
	return g
}

// come is called once by each goroutine.
func (g *gathering) come() {
	if g.missing.Add(-1) == 0 {
		close(g.whole)
	}
}

// gatherLimit is how long the workers of a node wait for each other before the first is asked.
const gatherLimit = 3 * time.Second

// dump writes down a worker's stacks. It gives ranks on other nodes the time to be stopped, too, before one ends.
func dump(ctx context.Context, dumper watch.Dumper, w *worker, all *gathering) stacks {
	var said bytes.Buffer
	come := sync.OnceFunc(all.come)
	defer come()
	dumper.Written = w.keepOutput()
	dumper.Together = func(ctx context.Context) {
		come()
		limited, cancel := context.WithTimeout(ctx, gatherLimit) // leaves time to ask those that have come
		defer cancel()
		select {
		case <-all.whole:
			_ = pause.For(ctx, rendezvous.SignalDelay)
		case <-limited.Done():
		}
	}
	processes, err := dumper.Dump(ctx, w.process.Pid(), &said)
	one := stacks{Rank: w.numbers.Rank, Standing: w.standing(processes)}
	if path := w.files.stacks; path != "" {
		if err = errors.Join(err, os.WriteFile(path, said.Bytes(), 0o600)); err == nil {
			one.Path = path
			return one
		}
	}
	if err != nil {
		fmt.Fprintln(&said, err)
	}
	one.Text = beginning(said.String())
	return one
}

// beginning cuts a text to what fits into a report.
func beginning(said string) string {
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimRight(said, "\n"), "\n") {
		if i == stacksLines {
			b.WriteString("...\n")
			break
		}
		line = text.Clean(line)
		if runes := []rune(line); len(runes) > stacksWidth {
			line = string(runes[:stacksWidth])
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// report returns the lines about the stacks in a report, below the line of the rank.
func (s stacks) report() string {
	if s.Path != "" {
		return "    stacks: " + s.Path + "\n"
	}
	var b strings.Builder
	for line := range strings.Lines(s.Text) {
		b.WriteString("    | " + line)
	}
	return b.String()
}

// stacksPath is the file for a worker's stacks, beside its logs; "": none.
func (r *round) stacksPath(n rendezvous.RankNumbers, files workerFiles) string {
	switch {
	case r.cfg.HangAfter <= 0:
		return ""
	case r.cfg.RunDir != nil:
		return r.cfg.RunDir.LogPath(r.cfg.Attempt, r.cfg.Host, n.Rank, "stacks")
	case files.errorFile != "": // below --log-dir
		return filepath.Join(filepath.Dir(files.errorFile), "stacks.txt")
	}
	return ""
}
