package goodput

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
)

// state is the state of a run at some time, according to its ledger.
type state int

const (
	idle   state = iota // it has no job
	queued              // its job is pending
	runs                // an attempt runs
	ended               // an attempt has ended, and what follows is not decided
)

// clock goes through a run's ledger, and adds each period of time to one part of the breakdown.
type clock struct {
	sums   map[int]*Breakdown // by the number of nodes of the attempt to which the time belongs
	ask    int                // how many nodes an attempt has whose beginning does not say it
	reads  *progress
	kept   map[int]keep
	anew   int // the attempt with which the run last began anew; 0: the first
	causes map[int]string

	at    time.Time // all time before this has been added to sum
	now   time.Time
	state state
	begin rundir.Event // the beginning of the newest attempt
	again bool         // the newest attempt was started within the job, after another one's failure
}

// account returns the breakdown of the time from start to now, by events, the oldest first. ask is how many nodes an attempt has whose
// beginning does not say it.
func account(events []rundir.Event, reads *progress, anew, ask int, start, now time.Time) Breakdown {
	c := clock{
		sums: map[int]*Breakdown{}, ask: ask, reads: reads, kept: reads.kept(), anew: anew, causes: causesIn(events), at: start, now: now,
	}
	for _, e := range events {
		c.event(e)
	}
	switch c.state {
	case queued:
		c.sum().Queued += c.until(now)
	case runs:
		c.attempt(now, "")
	}
	whole := Breakdown{Nodes: c.nodes(), Open: c.state == queued || c.state == runs}
	for _, nodes := range slices.Sorted(maps.Keys(c.sums)) {
		whole.Add(*c.sums[nodes])
	}
	return whole
}

// nodes returns how many nodes the newest attempt has.
func (c *clock) nodes() int { return cmp.Or(max(0, c.begin.NodeCount), c.ask) }

// sum returns the breakdown to which the newest attempt's time is added.
func (c *clock) sum() *Breakdown {
	nodes := c.nodes()
	if c.sums[nodes] == nil {
		c.sums[nodes] = &Breakdown{Nodes: nodes}
	}
	return c.sums[nodes]
}

// causesIn returns the cause of each attempt's end. If the ledger has several, the last one counts, which is known better.
func causesIn(events []rundir.Event) map[int]string {
	causes := map[int]string{}
	for _, e := range events {
		if e.Event == rundir.EventEnd {
			causes[e.Attempt] = causeOf(e.Cause)
		}
	}
	return causes
}

// causeOf returns the cause that a text from a ledger names. Unknown texts give recovery.Unknown.
func causeOf(text string) string {
	cause := recovery.Cause(text)
	others := []recovery.Cause{recovery.Done, recovery.Saved, recovery.Cancelled, recovery.Start}
	if !slices.Contains(recovery.Causes(), cause) && !slices.Contains(others, cause) {
		cause = recovery.Unknown
	}
	return string(cause)
}

// until moves c to the time t, and returns how much time passed. Clocks of nodes differ: if t is before c's time, no time passes.
func (c *clock) until(t time.Time) time.Duration {
	if t.After(c.now) {
		t = c.now
	}
	if !t.After(c.at) {
		return 0
	}
	passed := t.Sub(c.at)
	c.at = t
	return passed
}

func (c *clock) event(e rundir.Event) {
	switch e.Event {
	case rundir.EventSubmit, rundir.EventResume, rundir.EventLink:
		c.submitted(e)
	case rundir.EventBegin:
		c.began(e)
	case rundir.EventEnd:
		if c.state == runs && e.Attempt == c.begin.Attempt {
			cause := c.causes[e.Attempt]
			c.attempt(e.Time, cause)
			c.state = ended
			if cause == string(recovery.Done) { // nothing follows, unless a person resumes the run
				c.state = idle
			}
		}
	case rundir.EventRestart:
		if c.state == ended {
			c.lose(e.Time)
		}
	case rundir.EventRequeue, rundir.EventLinkEnd:
		if c.state == ended {
			if !e.NotedLate() { // otherwise the job has been pending since
				c.lose(e.Time)
			}
			c.state = queued
		}
	case rundir.EventGiveUp, rundir.EventRefused, rundir.EventCancel:
		c.over(e)
	}
}

// submitted handles the submission of a job.
func (c *clock) submitted(e rundir.Event) {
	switch c.state {
	case idle, ended:
		c.sum().Idle += c.until(e.Time)
		c.state = queued
	case queued:
		c.sum().Queued += c.until(e.Time)
	case runs: // the event may have been recorded late, or belong to a further link of a chain
		if id, ok := e.SubmittedJob(); ok && id != c.begin.Job && e.Event != rundir.EventLink {
			c.close(e.Time)
			c.sum().Idle += c.until(e.Time)
			c.state = queued
		}
	}
}

// over handles an event after which the run does not go on by itself. An attempt that is canceled while it runs goes on until its end.
func (c *clock) over(e rundir.Event) {
	switch c.state {
	case queued:
		c.sum().Queued += c.until(e.Time)
		c.state = idle
	case ended:
		c.lose(e.Time)
		c.state = idle
	}
}

func (c *clock) began(e rundir.Event) {
	if c.state == runs {
		c.close(e.Time)
	}
	same := c.begin.Attempt > 0 && c.begin.Job == e.Job && c.begin.Start == e.Start
	c.again = c.state == ended && same
	switch {
	case c.again:
		c.lose(e.Time)
	case c.state == idle && c.begin.Attempt > 0:
		c.sum().Idle += c.until(e.Time)
	default:
		c.sum().Queued += c.until(e.Time)
	}
	if same && e.NodeCount == 0 { // a restart within the job
		e.NodeCount = c.begin.NodeCount
	}
	c.begin, c.state = e, runs
}

// close ends an attempt whose end was not recorded. It ends the attempt at its last line of metrics, but not after before, when something
// else went on.
func (c *clock) close(before time.Time) {
	last := c.at
	if t := c.training(c.begin.Attempt); t != nil {
		last = earlier(t.marks[len(t.marks)-1].at, before)
	}
	c.causes[c.begin.Attempt] = string(recovery.Unknown)
	c.attempt(last, string(recovery.Unknown))
	c.state = ended
}

// lose adds the time until t to the cause of the newest attempt's end.
func (c *clock) lose(t time.Time) { c.sum().lose(c.causes[c.begin.Attempt], c.until(t)) }

func (c *clock) training(attempt int) *training {
	if t := c.reads.attempts[attempt]; t != nil && len(t.marks) > 0 {
		return t
	}
	return nil
}

// attempt adds the newest attempt's time until end to the parts. cause is the cause of its end; "" if it still runs.
func (c *clock) attempt(end time.Time, cause string) {
	t := c.training(c.begin.Attempt)
	if t == nil {
		c.unseen(end, cause)
		return
	}
	first := c.reads.began(t)
	if ready := c.at.Add(t.prepared); first.Before(ready) && !ready.After(t.marks[0].at) {
		first = ready
	}
	c.start(earlier(first, end))

	keep := c.kept[c.begin.Attempt]
	reached, stall := c.reads.reached(t, keep.step)
	stall -= t.stallBefore(c.at)
	if cause == "" && keep.by == 0 {
		reached = end
	}
	trained := c.until(earlier(reached, end))
	stall = min(stall, trained)
	c.sum().Saving += stall
	c.sum().Productive += trained - stall

	if keep.by != 0 && c.anew > c.begin.Attempt && keep.by >= c.anew {
		c.sum().lose(Anew, c.until(earlier(t.marks[len(t.marks)-1].at, end)))
	}
	switch rest := c.until(end); {
	case cause == string(recovery.Done), cause == "" && keep.by == 0:
		c.sum().Other += rest
	case cause == "": // another attempt has gone on already
		c.sum().lose(string(recovery.Unknown), rest)
	default:
		c.sum().lose(cause, rest)
	}
}

// start adds the time until the attempt's first step to the parts.
func (c *clock) start(first time.Time) {
	passed := c.until(first)
	if c.again {
		c.sum().lose(c.before(), passed)
		return
	}
	c.sum().Starting += passed
}

// before returns the cause of the end of the attempt before the newest one.
func (c *clock) before() string {
	known := slices.Sorted(maps.Keys(c.causes))
	i, _ := slices.BinarySearch(known, c.begin.Attempt)
	if i == 0 {
		return string(recovery.Unknown)
	}
	return c.causes[known[i-1]]
}

// unseen does the same as attempt for an attempt without metrics. If other attempts have metrics, this one did not reach its first line.
func (c *clock) unseen(end time.Time, cause string) {
	passed := c.until(end)
	switch known := len(c.kept) > 0 && !c.reads.cut; {
	case cause == string(recovery.Start), known && cause != "" && cause != string(recovery.Done):
		c.sum().lose(cause, passed)
	case !known:
		c.sum().Unknown += passed
	case cause == string(recovery.Done):
		c.sum().Other += passed
	case c.again:
		c.sum().lose(c.before(), passed)
	default:
		c.sum().Starting += passed
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
