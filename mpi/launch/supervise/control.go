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

// keyQuiet is where an agent, the first number, says so for the n-th time in the round, the second one.
const keyQuiet = "quiet/%d/%d"

// keyBeats is where an agent, the first number, says for the n-th time in the round how far its workers are.
const keyBeats = "beats/%d/%d"

// controlChannel is what an agent says to the others and hears from them in one round, through the control
// store, in goroutines of its own: a Get there takes as long as the round.
type controlChannel struct {
	ends      chan rundir.Verdict // in: at most one, of a worker that ended badly
	proposals chan rundir.Verdict // in: at most one
	ended     chan endsReport     // in: this agent's workers are gone
	quietOut  chan quiet          // in, but for agent 0: the workers give no signs of life, or do again

	beatsOut chan agentBeats // in, but for agent 0: how far the workers are

	first     chan rundir.Verdict          // out: which of all agents' ends came first
	outcomes  chan rundir.Verdict          // out: the round's outcome
	lost      chan *rendezvous.Participant // out, at agent 0: a member was lost before its workers were gone
	reported  chan struct{}                // out, at agent 0: all members have said how their workers ended, or are lost; see reports
	quietIn   chan quietReport             // out, at agent 0: what members say of their workers' signs of life
	beatsIn   chan agentBeats              // out, at agent 0: how far members' workers are
	lastWords chan *rendezvous.LastWord    // out, elsewhere: agent 0's last word; nil: agent 0 is lost

	wg sync.WaitGroup

	mu      sync.Mutex
	byAgent map[int]endsReport // by agent
}

// openControlChannel begins to listen; it all ends with ctx.
func openControlChannel(ctx context.Context, r *round) *controlChannel {
	c := &controlChannel{
		ends:      make(chan rundir.Verdict, 1),
		proposals: make(chan rundir.Verdict, 1),
		ended:     make(chan endsReport, 1),
		quietOut:  make(chan quiet, 4),
		beatsOut:  make(chan agentBeats, 1),
		beatsIn:   make(chan agentBeats),
		first:     make(chan rundir.Verdict, 1),
		outcomes:  make(chan rundir.Verdict, 1),
		lost:      make(chan *rendezvous.Participant, len(r.layout.Participants)),
		reported:  make(chan struct{}, 1),
		quietIn:   make(chan quietReport),
		byAgent:   make(map[int]endsReport),
		lastWords: make(chan *rendezvous.LastWord, 1),
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
		c.receiveAllQuiet(ctx, r)
		c.receiveAllBeats(ctx, r)
		return c
	}
	c.wg.Go(func() { c.reportEnds(ctx, r) })
	c.wg.Go(func() { c.reportQuiet(ctx, r) })
	c.wg.Go(func() { c.reportBeats(ctx, r) })
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

// reportQuiet tells agent 0 what this agent has to say of its workers.
func (c *controlChannel) reportQuiet(ctx context.Context, r *round) {
	for n := 0; ; n++ {
		select {
		case said := <-c.quietOut:
			if err := rendezvous.SetJSON(ctx, r.store, fmt.Sprintf(keyQuiet, r.cfg.Index, n), said); err != nil {
				return // agent 0 is lost, as everybody notices
			}
		case <-ctx.Done():
			return
		}
	}
}

// receiveAllQuiet begins to hear what the members say of their workers.
func (c *controlChannel) receiveAllQuiet(ctx context.Context, r *round) {
	if r.cfg.HangAfter <= 0 {
		return
	}
	for _, p := range r.layout.Participants {
		c.wg.Go(func() { c.receiveQuiet(ctx, r, p.Index) })
	}
}

// receiveQuiet hears what a member says of its workers.
func (c *controlChannel) receiveQuiet(ctx context.Context, r *round, index int) {
	for n := 0; ; n++ {
		key := fmt.Sprintf(keyQuiet, index, n)
		said, err := rendezvous.GetJSON[quiet](ctx, r.store, key)
		if err != nil {
			return
		}
		select {
		case c.quietIn <- quietReport{said, index, time.Now()}:
		case <-ctx.Done():
			return
		}
		if _, err := r.store.Delete(ctx, key); err != nil {
			return
		}
	}
}

// reportBeats tells agent 0 how far this agent's workers are.
func (c *controlChannel) reportBeats(ctx context.Context, r *round) {
	for n := 0; ; n++ {
		select {
		case b := <-c.beatsOut:
			if err := rendezvous.SetJSON(ctx, r.store, fmt.Sprintf(keyBeats, r.cfg.Index, n), b); err != nil {
				return // agent 0 is lost, as everybody notices
			}
		case <-ctx.Done():
			return
		}
	}
}

// receiveAllBeats begins to hear how far the members' workers are.
func (c *controlChannel) receiveAllBeats(ctx context.Context, r *round) {
	if !r.cfg.watchesSteps() {
		return
	}
	for _, p := range r.layout.Participants {
		c.wg.Go(func() { c.receiveBeats(ctx, r, p.Index) })
	}
}

func (c *controlChannel) receiveBeats(ctx context.Context, r *round, index int) {
	for n := 0; ; n++ {
		key := fmt.Sprintf(keyBeats, index, n)
		b, err := rendezvous.GetJSON[agentBeats](ctx, r.store, key)
		if err != nil {
			return
		}
		select {
		case c.beatsIn <- b:
		case <-ctx.Done():
			return
		}
		if _, err := r.store.Delete(ctx, key); err != nil {
			return
		}
	}
}
