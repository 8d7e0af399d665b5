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

// hang is what agent 0 knows of workers that hang.
type hang struct {
	ranks []silentRank  // the first to fall silent first
	named int           // how many of them are to blame, as far as can be told, at the beginning of ranks
	why   string        // they are; "": they fell silent before all others
	blur  time.Duration // within which it is not known which of two fell silent first, of two agents' ranks
	where string        // what the ranks' stacks say of whom they wait for; "": nothing

	inCalls bool // all ranks wait in calls of their group, so that no node is to blame
}

// silentRank is a quietRank on agent 0's clock.
type silentRank struct {
	quietRank
	agent    int // that has told of it
	since    time.Time
	standing stack.Standing // by its stacks, once they have been asked for
}

// evidence is how much a rank's place speaks for the others waiting for it, rather than the other way round.
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

// newHang finds who fell silent first. Of one agent's ranks, which it looks at together, that is exact; of two agents' it is known to
// within the time between two looks, also where they are on one node.
// Ranks that wait for one another do so within one step: of several that fell silent together, what each is in tells. A rank that somebody
// has stopped waits for nobody, so it counts among them however late its last sign of life was: signs come at intervals, and those of the
// ranks that wait for it may have been older.
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

// host is the one that the ranks to blame are on; "": there are several.
func (h *hang) host() string {
	host := h.ranks[0].Host
	for _, r := range h.ranks[:h.named] {
		if r.Host != host {
			return ""
		}
	}
	return host
}

// since is when the last of the ranks to blame gave its last sign.
func (h *hang) since() time.Time {
	return slices.MaxFunc(h.ranks[:h.named], silentRank.compare).since
}

func (r silentRank) compare(other silentRank) int { return r.since.Compare(other.since) }

// hasEvidence tells whether there is something that speaks for the named ones, and not only that nothing speaks for others.
func (h *hang) hasEvidence() bool { return h.named == 1 || h.why != "" || len(h.ranks) > h.named }

// hangOutcome says that the workers hang, and whose fault that is, as far as can be told.
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
	if h.hasEvidence() && !h.inCalls { // a host that a verdict of a hang names is left out by the next attempt
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

// standing says what sets the named ranks apart from the others.
func (h *hang) standing() string {
	all := len(h.ranks)
	switch {
	case all == 1:
		return ""
	case h.why != "" && h.ranks[0].Condition.Stopped: // which has been said
		return fmt.Sprintf(", of %d ranks that went quiet", all)
	case h.why != "":
		return fmt.Sprintf(": %s, of %d ranks that went quiet", h.why, all)
	case h.named == all:
		return ": which of them went quiet first cannot be told"
	case h.named > 1:
		return fmt.Sprintf(": the first of %d ranks to go quiet, together", all)
	}
	return fmt.Sprintf(": the first of %d ranks to go quiet", all)
}

// span is a time for people.
func span(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Truncate(100 * time.Millisecond)
	}
	return d.Truncate(time.Second)
}

// report tells a person of the ranks that hung, and where each was.
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
	stacksLimit = 8 * time.Second  // for the stacks of all of a node's workers
	hangGrace   = 10 * time.Second // at most, between TERM and KILL of workers that hang

	stacksLines = 40 // of those that have no file, in the report
	stacksWidth = 160
)

// stacks tells what a worker's threads were doing when it was about to be ended, since it hung.
type stacks struct {
	Rank int    `json:"rank"`
	Path string `json:"path,omitempty"` // the file; "": there is none
	Text string `json:"text,omitempty"` // its beginning where there is no file, or what went wrong

	Standing stack.Standing `json:"standing,omitzero"` // what they come to
}

// stacksOf finds the stacks that agents have told of, by rank.
func stacksOf(reports map[int]endsReport) map[int]stacks {
	found := map[int]stacks{}
	for _, r := range reports {
		for _, one := range r.Stacks {
			found[one.Rank] = one
		}
	}
	return found
}

// dumpStacks has the stacks of this node's workers written down, which ends those that are written in Go, and the others when that
// is done.
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

// dumpAll returns what is there when ctx ends. It leaves goroutines behind for as long as the kernel, or the file system,
// does not answer.
func dumpAll(ctx context.Context, dumper watch.Dumper, workers []*worker) []stacks {
	done := make(chan stacks, len(workers))
	all := newGathering(len(workers))
	for _, w := range workers {
		go func() { done <- dump(ctx, dumper, w, all) }()
	}
	// A dump says by itself that its time is over, unless its file cannot be written.
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

// gathering is a moment for which several goroutines wait for each other.
type gathering struct {
	missing atomic.Int64
	whole   chan struct{} // closed when all have come
}

func newGathering(n int) *gathering {
	g := &gathering{whole: make(chan struct{})}
	g.missing.Store(int64(n))
	return g
}

// come is called once by each.
func (g *gathering) come() {
	if g.missing.Add(-1) == 0 {
		close(g.whole)
	}
}

// gatherLimit is how long the workers of a node wait for each other before the first is asked.
const gatherLimit = 3 * time.Second

// dump writes down a worker's stacks. Ranks on other nodes are given the time, too, to stand still before one ends.
func dump(ctx context.Context, dumper watch.Dumper, w *worker, all *gathering) stacks {
	var said bytes.Buffer
	come := sync.OnceFunc(all.come)
	defer come()
	dumper.Written = w.keepOutput()
	dumper.Together = func(ctx context.Context) {
		come()
		limited, cancel := context.WithTimeout(ctx, gatherLimit) // so that time is left to ask those that have come
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

// beginning is so much of a text as a report has room for.
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

// report is what a report says of them, below the line of the rank.
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

// stacksPath is where a worker's stacks go, beside its logs; "": nowhere.
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
