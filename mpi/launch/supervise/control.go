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
	keyFirst   = "first"   // rundir.Verdict of the worker that failed first, by its agent
	keyOutcome = "outcome" // rundir.Verdict, by the first agent to set it
	keyEnd     = "end/%d"  // endsReport, by agent: its workers have ended
	keyLast    = "last"    // LastWord, by agent 0, when the verdict is on disk
)

// keyWorkers is the key of an agent's n-th report on its running workers in the round. Its numbers are the agent and n.
const keyWorkers = "workers/%d/%d"

// workersReport is an agent's report on its workers while they run.
type workersReport struct {
	Host  string     `json:"host"`
	Quiet *quiet     `json:"quiet,omitempty"` // if that has changed
	Beats []rankBeat `json:"beats,omitempty"` // those that have changed
}

// receivedReport is a workersReport that agent 0 has received.
type receivedReport struct {
	workersReport
	agent int
	at    time.Time // on agent 0's clock
}

// controlChannel is an agent's messages to and from the other agents in one round, through the control store. It has its own
// goroutines, because a Get there takes as long as the round.
type controlChannel struct {
	ends       chan rundir.Verdict // in: at most one, of a worker that failed
	proposals  chan rundir.Verdict // in: at most one
	ended      chan endsReport     // in: this agent's workers have ended
	workersOut chan workersReport  // in, except at agent 0: news of the workers

	first     chan rundir.Verdict          // out: the first failure of all agents' workers
	outcomes  chan rundir.Verdict          // out: the round's outcome
	lost      chan *rendezvous.Participant // out, at agent 0: a member was lost before its workers had ended
	reported  chan struct{}                // out, at agent 0: all members have reported how their workers ended, or are lost; see reports
	workersIn chan receivedReport          // out, at agent 0: the members' reports on their workers
	lastWords chan *rendezvous.LastWord    // out, elsewhere: the round's end, by agent 0; nil: agent 0 is lost

	wg sync.WaitGroup

	mu      sync.Mutex
	byAgent map[int]endsReport // by agent
}

// openControlChannel opens the control channel, which ends with ctx.
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

// wait returns when all goroutines of c have ended. Its context must have ended.
func (c *controlChannel) wait() { c.wg.Wait() }

// publishFirst asks the store which worker failed first: a consequence on another node may be proposed sooner than its cause, if it
// is in doubt whether the latter is one (see mayBeSignalled).
func (c *controlChannel) publishFirst(ctx context.Context, r *round) {
	select {
	case v := <-c.ends:
		first := v
		text, err := json.Marshal(v)
		if err == nil {
			text, err = r.store.CompareSet(ctx, keyFirst, nil, text)
		}
		if err != nil || json.Unmarshal(text, &first) != nil {
			first = v // agent 0 is most likely lost, and the proposal will fail, too
		}
		c.first <- first
	case <-ctx.Done():
	}
}

// publishOutcome makes this agent's proposal the outcome, unless there is one: the first CompareSet wins. If that fails, agent 0 is
// lost, and that is the outcome.
func (c *controlChannel) publishOutcome(ctx context.Context, r *round) {
	select {
	case v := <-c.proposals:
		text, err := json.Marshal(v)
		if err == nil {
			_, err = r.store.CompareSet(ctx, keyOutcome, nil, text)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("could not tell the other agents why the run ends", "why", v.Message, "error", err)
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
			r.cfg.Log.Warn("could not tell agent 0 that this agent's workers have ended", "error", err)
		}
	case <-ctx.Done():
	}
}

// awaitReports waits until agent 0's own workers have ended, and every other member has reported that its workers have ended, or is
// lost.
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

// reports returns the members' reports of how their workers ended so far, by agent.
func (c *controlChannel) reports() map[int]endsReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byAgent)
}

// reportOf waits for a member's report. It returns false if the member is lost before, or ctx ends.
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

// sinceRound converts the times of a report, which has just come, to agent 0's clock: time since the round began. That is right
// whatever the nodes' clocks show, except for the time that the report took.
func (r *endsReport) sinceRound(began time.Time) {
	for i := range r.Deaths {
		r.Deaths[i].Ended += time.Since(began)
	}
}

// reportWorkers sends this agent's reports on its workers to agent 0.
func (c *controlChannel) reportWorkers(ctx context.Context, r *round) {
	for n := 0; ; n++ {
		select {
		case said := <-c.workersOut:
			if err := rendezvous.SetJSON(ctx, r.store, fmt.Sprintf(keyWorkers, r.cfg.Index, n), said); err != nil {
				return // agent 0 is lost, which all goroutines notice
			}
		case <-ctx.Done():
			return
		}
	}
}

// receiveAllWorkers begins to receive the members' reports on their workers.
func (c *controlChannel) receiveAllWorkers(ctx context.Context, r *round) {
	if r.cfg.HangAfter <= 0 {
		return
	}
	for _, p := range r.layout.Participants {
		c.wg.Go(func() { c.receiveWorkers(ctx, r, p.Index) })
	}
}

// receiveWorkers receives a member's reports on its workers.
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
