package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/rendezvous"
)

// Keys of a round, below its number.
const (
	keyFirst   = "first"   // rundir.Verdict, of the worker that ended badly before all others, by its agent
	keyOutcome = "outcome" // rundir.Verdict, by whoever comes first
	keyEnd     = "end/%d"  // report, by agent: its workers are gone
	keyLast    = "last"    // last, by agent 0, when the verdict is on disk
)

// keyWorkers is where an agent, the first number, says something of its workers for the n-th time in the round, the second one.
const keyWorkers = "workers/%d/%d"

// workersReport is what an agent says of its workers while they run.
type workersReport struct {
	Host  string     `json:"host"`
	Quiet *quiet     `json:"quiet,omitempty"` // where that has changed
	Beats []rankBeat `json:"beats,omitempty"` // of those that have changed
}

// receivedReport is one that agent 0 has got.
type receivedReport struct {
	workersReport
	agent int
	at    time.Time // on agent 0's clock
}

// controlChannel is what an agent says to the others and hears from them in one round, through the control
// store, in goroutines of its own: a Get there takes as long as the round.
type controlChannel struct {
	ends       chan rundir.Verdict // in: at most one, of a worker that ended badly
	proposals  chan rundir.Verdict // in: at most one
	ended      chan endsReport     // in: this agent's workers are gone
	workersOut chan workersReport  // in, but for agent 0: what is new of the workers

	first     chan rundir.Verdict          // out: which of all agents' ends came first
	outcomes  chan rundir.Verdict          // out: the round's outcome
	lost      chan *rendezvous.Participant // out, at agent 0: a member was lost before its workers were gone
	reported  chan struct{}                // out, at agent 0: all members have said how their workers ended, or are lost; see reports
	workersIn chan receivedReport          // out, at agent 0: what members say of their workers
	lastWords chan *rendezvous.LastWord    // out, elsewhere: agent 0's last word; nil: agent 0 is lost

	wg sync.WaitGroup

	mu      sync.Mutex
	byAgent map[int]endsReport // by agent
}

// openControlChannel begins to listen; it all ends with ctx.
func openControlChannel(ctx context.Context, r *round) *controlChannel {
	c := &controlChannel{
		ends:       make(chan rundir.Verdict, 1),
		proposals:  make(chan rundir.Verdict, 1),
		ended:      make(chan endsReport, 1),
		workersOut: make(chan workersReport, 1),
		first:      make(chan rundir.Verdict, 1),
		outcomes:   make(chan rundir.Verdict, 1),
		lost:       make(chan *rendezvous.Participant, len(r.layout.Participants)),
		reported:   make(chan struct{}, 1),
		workersIn:  make(chan receivedReport),
		byAgent:    make(map[int]endsReport),
		lastWords:  make(chan *rendezvous.LastWord, 1),
	}
	c.wg.Go(func() { c.publishFirst(ctx, r) })
	c.wg.Go(func() { c.publishOutcome(ctx, r) })
	c.wg.Go(func() {
		if v, err := rendezvous.GetJSON[rundir.Verdict](ctx, r.store, keyOutcome); err == nil {
			c.outcomes <- v
		}
	})
	if r.cfg.Index == 0 {
		c.wg.Go(func() { c.awaitReports(ctx, r) })
		c.wg.Go(func() { r.awaitStopFile(ctx) })
		c.receiveAllWorkers(ctx, r)
		return c
	}
	c.wg.Go(func() { c.reportEnds(ctx, r) })
	c.wg.Go(func() { c.reportWorkers(ctx, r) })
	c.wg.Go(func() {
		l, err := rendezvous.GetJSON[*rendezvous.LastWord](ctx, r.store, keyLast)
		if err != nil {
			l = nil
		}
		c.lastWords <- l
	})
	return c
}

// wait returns when nothing of c runs any more; its context must have ended.
func (c *controlChannel) wait() { c.wg.Wait() }

// publishFirst asks the store which worker ended badly first: a consequence on another node
// may be proposed sooner than its cause, of which there may be doubt (see mayBeSignalled).
func (c *controlChannel) publishFirst(ctx context.Context, r *round) {
	select {
	case v := <-c.ends:
		first := v
		text, err := json.Marshal(v)
		if err == nil {
			text, err = r.store.CompareSet(ctx, keyFirst, nil, text)
		}
		if err != nil || json.Unmarshal(text, &first) != nil {
			first = v // agent 0 is gone, most likely, and the proposal will fail, too
		}
		c.first <- first
	case <-ctx.Done():
	}
}

// publishOutcome makes this agent's proposal the outcome, unless there is one: the
// first CompareSet wins. Where that fails agent 0 is lost, and that is the outcome.
func (c *controlChannel) publishOutcome(ctx context.Context, r *round) {
	select {
	case v := <-c.proposals:
		text, err := json.Marshal(v)
		if err == nil {
			_, err = r.store.CompareSet(ctx, keyOutcome, nil, text)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("the other agents cannot be told why the run ends", "why", v.Message, "error", err)
		}
	case <-ctx.Done():
	}
}

func (c *controlChannel) reportEnds(ctx context.Context, r *round) {
	select {
	case mine := <-c.ended:
		text, err := mine.encode(maxReport)
		if err == nil {
			err = r.store.Set(ctx, fmt.Sprintf(keyEnd, r.cfg.Index), text)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("agent 0 cannot be told that this agent's workers are gone", "error", err)
		}
	case <-ctx.Done():
	}
}

// awaitReports waits until every member has reported that its workers are
// gone, or is lost, and agent 0's own are.
func (c *controlChannel) awaitReports(ctx context.Context, r *round) {
	var others sync.WaitGroup
	for _, p := range r.layout.Participants {
		others.Go(func() {
			rep, ok := r.reportOf(ctx, p)
			switch {
			case ok:
				c.keep(p.Index, rep)
			case ctx.Err() == nil:
				c.lost <- p
			}
		})
	}
	select {
	case mine := <-c.ended:
		mine.sinceRound(r.began)
		c.keep(0, mine)
	case <-ctx.Done():
	}
	others.Wait()
	c.reported <- struct{}{}
}

func (c *controlChannel) keep(index int, r endsReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byAgent[index] = r
}

// reports is what members have said of their workers so far, by agent.
func (c *controlChannel) reports() map[int]endsReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byAgent)
}

// reportOf waits for a member's report; false where the member is lost before, or ctx ends.
func (r *round) reportOf(ctx context.Context, p *rendezvous.Participant) (endsReport, bool) {
	key := fmt.Sprintf(keyEnd, p.Index)
	getCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // ends with this call
		select {
		case <-p.Gone():
			cancel()
		case <-stop:
		}
	}()
	rep, err := rendezvous.GetJSON[endsReport](getCtx, r.store, key)
	if err != nil && ctx.Err() == nil {
		// It may have reported just before it left.
		if there, _ := r.store.Check(ctx, key); there {
			rep, err = rendezvous.GetJSON[endsReport](ctx, r.store, key)
		}
	}
	rep.sinceRound(r.began)
	return rep, err == nil
}

// sinceRound puts the times of a report, which has come this moment, on agent 0's clock: since the round began. However the
// nodes' clocks differ, that is right but for the time that the report took.
func (r *endsReport) sinceRound(began time.Time) {
	for i := range r.Deaths {
		r.Deaths[i].Ended += time.Since(began)
	}
}

// reportWorkers tells agent 0 what this agent has to say of its workers.
func (c *controlChannel) reportWorkers(ctx context.Context, r *round) {
	for n := 0; ; n++ {
		select {
		case said := <-c.workersOut:
			if err := rendezvous.SetJSON(ctx, r.store, fmt.Sprintf(keyWorkers, r.cfg.Index, n), said); err != nil {
				return // agent 0 is lost, as everybody notices
			}
		case <-ctx.Done():
			return
		}
	}
}

// receiveAllWorkers begins to receive what the members say of their workers.
func (c *controlChannel) receiveAllWorkers(ctx context.Context, r *round) {
	if r.cfg.HangAfter <= 0 {
		return
	}
	for _, p := range r.layout.Participants {
		c.wg.Go(func() { c.receiveWorkers(ctx, r, p.Index) })
	}
}

// receiveWorkers receives what a member says of its workers.
func (c *controlChannel) receiveWorkers(ctx context.Context, r *round, index int) {
	for n := 0; ; n++ {
		key := fmt.Sprintf(keyWorkers, index, n)
		said, err := rendezvous.GetJSON[workersReport](ctx, r.store, key)
		if err != nil {
			return
		}
		select {
		case c.workersIn <- receivedReport{said, index, time.Now()}:
		case <-ctx.Done():
			return
		}
		if _, err := r.store.Delete(ctx, key); err != nil {
			return
		}
	}
}
