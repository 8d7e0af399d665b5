package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/store"
)

// talk is what an agent says to the others and hears from them, through the
// store, in goroutines of its own: a Get there takes as long as the run.
type talk struct {
	ends      chan rundir.Verdict // in: at most one, of a worker that ended badly
	proposals chan rundir.Verdict // in: at most one
	ended     chan struct{}       // in: this agent's workers are gone

	first    chan rundir.Verdict  // out: which of all agents' ends came first
	outcomes chan rundir.Verdict  // out: the run's outcome
	lost     <-chan int           // out, at agent 0: an agent went away
	allEnded chan struct{}        // out, at agent 0: all agents' workers are gone, or the agent is
	verdicts chan *rundir.Verdict // out, elsewhere: agent 0's last word; nil: agent 0 went away

	wg sync.WaitGroup
}

// startTalk begins to listen; it all ends with ctx.
func startTalk(ctx context.Context, c AgentConfig, m *meeting) *talk {
	t := &talk{
		ends:      make(chan rundir.Verdict, 1),
		proposals: make(chan rundir.Verdict, 1),
		ended:     make(chan struct{}, 1),
		first:     make(chan rundir.Verdict, 1),
		outcomes:  make(chan rundir.Verdict, 1),
		allEnded:  make(chan struct{}, 1),
		verdicts:  make(chan *rundir.Verdict, 1),
	}
	t.wg.Go(func() { t.rank(ctx, m.store) })
	t.wg.Go(func() { t.propose(ctx, c, m.store) })
	t.wg.Go(func() {
		if v, err := getJSON[rundir.Verdict](ctx, m.store, keyOutcome); err == nil {
			t.outcomes <- v
		}
	})
	if c.Index == 0 {
		t.lost = m.roster.lost
		t.wg.Go(func() { t.awaitEnds(ctx, c, m) })
		return t
	}
	t.wg.Go(func() { t.reportEnd(ctx, c, m.store) })
	t.wg.Go(func() {
		v, err := getJSON[*rundir.Verdict](ctx, m.store, keyVerdict)
		if err != nil {
			v = nil
		}
		t.verdicts <- v
	})
	return t
}

// wait returns when nothing of t runs any more; its context must have ended.
func (t *talk) wait() { t.wg.Wait() }

// rank asks the store which worker ended badly first: a consequence on another node
// may be proposed sooner than its cause, of which there may be doubt (see mayBeTold).
func (t *talk) rank(ctx context.Context, s store.Store) {
	select {
	case v := <-t.ends:
		first := v
		text, err := json.Marshal(v)
		if err == nil {
			text, err = s.CompareSet(ctx, keyFirst, nil, text)
		}
		if err != nil || json.Unmarshal(text, &first) != nil {
			first = v // agent 0 is gone, most likely, and the proposal will fail, too
		}
		t.first <- first
	case <-ctx.Done():
	}
}

// propose makes this agent's proposal the outcome, unless there is one: the
// first CompareSet wins. Where that fails agent 0 is lost, and that is the outcome.
func (t *talk) propose(ctx context.Context, c AgentConfig, s store.Store) {
	select {
	case v := <-t.proposals:
		text, err := json.Marshal(v)
		if err == nil {
			_, err = s.CompareSet(ctx, keyOutcome, nil, text)
		}
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("the other agents cannot be told why the run ends", "why", v.Message, "error", err)
		}
	case <-ctx.Done():
	}
}

func (t *talk) reportEnd(ctx context.Context, c AgentConfig, s store.Store) {
	select {
	case <-t.ended:
		if err := s.Set(ctx, fmt.Sprintf(keyEnd, c.Index), []byte(c.Host)); err != nil && ctx.Err() == nil {
			c.Log.Warn("agent 0 cannot be told that this agent's workers are gone", "error", err)
		}
	case <-ctx.Done():
	}
}

// awaitEnds waits until every other agent has reported that its workers are
// gone, or is gone itself, and agent 0's own are.
func (t *talk) awaitEnds(ctx context.Context, c AgentConfig, m *meeting) {
	for index := 1; index < c.Count; index++ {
		getCtx, cancel := context.WithCancel(ctx)
		t.wg.Go(func() {
			select {
			case <-m.roster.gone[index]:
				cancel()
			case <-getCtx.Done():
			}
		})
		// An error means that the agent is gone, or that ctx has ended.
		_, _ = m.store.Get(getCtx, fmt.Sprintf(keyEnd, index))
		cancel()
	}
	select {
	case <-t.ended:
		t.allEnded <- struct{}{}
	case <-ctx.Done():
	}
}
