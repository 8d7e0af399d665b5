package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/reach"
)

// reject is all that an agent does that cannot take part: it tells the others why, so that they do not wait for it. The error is
// the reason.
func (c AgentConfig) reject(ctx context.Context) error {
	if c.Count > 1 {
		say := time.AfterFunc(firstLook, func() { // else the error is soon enough
			c.Log.Warn("this agent cannot take part, and waits for the others to tell them so", "error", c.Declines)
		})
		defer say.Stop()
		c.Log.Debug("this agent has said to the others that it cannot take part", "answer", c.publishRejection(ctx))
	}
	return c.Declines
}

// rejectWait is how long those are waited for that have not heard yet that the run will not begin.
const rejectWait = 10 * time.Second

// publishRejection tells the others why this agent rejects, at the place where they look for agent 0 or by agent 0. The error is the answer.
func (c AgentConfig) publishRejection(ctx context.Context) error {
	if c.Exchange == nil { // which ends when all have called it
		c.JoinTimeout = min(c.JoinTimeout, rejectWait)
	}
	c.joinBy = c.joinEnd()
	var l net.Listener
	var err error
	switch {
	case c.Index == 0 && c.Exchange != nil:
		return c.exchangeOffer(ctx, offer{Run: c.RunID, Rejected: c.rejection()})
	case c.Index == 0:
		l, err = c.listen(network{})
	case c.Index < 0 && !c.Guest:
		l, err = c.claimEndpoint(ctx, network{})
	}
	switch {
	case l != nil:
		c.Index = 0
		_, err = serveRendezvous(ctx, c, network{}, l) // which ends in the reason
		return err
	case err != nil && !errors.Is(err, syscall.EADDRINUSE), c.Index == 0:
		return err
	}
	r, err := dialRendezvous(ctx, c, network{}) // whose error is the echo of the reason, or that agent 0 is not there
	if err == nil {
		err = r.close()
	}
	return err
}

// rejection is what the others hear.
func (c AgentConfig) rejection() *rejection {
	r := *rejectionOf(c.Declines)
	r.Message = fmt.Sprintf("%s cannot take part: %s", c.who(), r.Message)
	return &r
}

// ErrTimeout: not all agents of the run came in time.
var ErrTimeout = errors.New("the time for all agents to meet is over")

// rejection is an error that travels between agents.
type rejection struct {
	Cause   string `json:"cause"`
	Exit    int    `json:"exit"`
	Signal  int    `json:"signal,omitempty"`
	Message string `json:"message"`
}

func (r *rejection) Error() string { return r.Message }

// rejectionOf classifies why the agents did not meet.
func rejectionOf(err error) *rejection {
	var (
		known  *rejection
		lost   *LostError
		unmet  *notMetError
		signal SignalError
	)
	r := &rejection{Cause: causeStart, Exit: exitFailed, Message: err.Error()}
	if errors.As(err, &unmet) {
		r.Message = unmet.err.Error()
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &signal):
		r.Cause, r.Signal, r.Exit = causeCancelled, int(signal.Sig), exitSignal+int(signal.Sig)
	case errors.Is(err, context.Canceled):
		r.Cause, r.Signal, r.Exit = causeCancelled, int(syscall.SIGTERM), exitSignal+int(syscall.SIGTERM)
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		r.Cause, r.Exit = causeTimeout, exitTimeout
	case errors.As(err, &lost):
		r.Cause = causeNode
	case errors.Is(err, rundir.ErrSuperseded):
		r.Exit = exitNoRequeue
	}
	return r
}

// overError: this agent came too late to have a part in the run, which ended so.
type overError struct{ last rundir.Verdict }

func (e *overError) Error() string { return "the run is over: " + e.last.Message }

const (
	sayInterval = 10 * time.Second // between two lines that say who is waited for
	maxRows     = 32               // agents of which agent 0 tells what they tried
	maxTries    = 32               // addresses of each
	maxReason   = 200              // bytes of what went wrong at one
)

// notMetError is why agents did not meet, and what those tried that did not get through.
type notMetError struct {
	err  error
	rows []reach.AgentTries
}

func (e *notMetError) Error() string {
	if len(e.rows) == 0 {
		return e.err.Error()
	}
	return e.err.Error() + "\n" + reach.Matrix(e.rows)
}

func (e *notMetError) Unwrap() error { return e.err }

// sayEvery calls say now and then, with the time since, until the returned function is called.
func (c AgentConfig) sayEvery(say func(since time.Duration)) (stop func()) {
	begun := time.Now()
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(sayInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				say(time.Since(begun).Round(time.Second))
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-stopped
	}
}

// tries is what this agent has tried so far. Ports of one host where the same went wrong are one line.
func (d *dialer) tries() reach.AgentTries {
	row := reach.AgentTries{From: d.cfg.Host}
	hosts := make(map[[2]string]int)
	more := make(map[int]int)
	d.mu.Lock()
	leftTo := d.savedPortAt
	d.mu.Unlock()
	for _, try := range d.race.Tries() {
		if try.Addr == d.savedPortAddr() {
			if try.Err == "" || try.Err == errNoSavedPort.Error() {
				continue // there is nothing to try
			}
			try.Addr = cmp.Or(leftTo, try.Addr)
		}
		host, _, _ := net.SplitHostPort(try.Addr)
		at, known := hosts[[2]string{host, try.Err}]
		if known {
			more[at]++
			row.Tries[at].Count += try.Count
			continue
		}
		if len(row.Tries) == maxTries {
			break
		}
		hosts[[2]string{host, try.Err}] = len(row.Tries)
		try.Err = try.Err[:min(len(try.Err), maxReason)]
		row.Tries = append(row.Tries, try)
	}
	for at, n := range more {
		row.Tries[at].Addr += fmt.Sprintf(" and %d more ports", n)
	}
	return row
}

// saveTries leaves word for agent 0, which may be all that is ever heard of this agent.
func (c AgentConfig) saveTries(row reach.AgentTries) {
	if c.RunDir == nil || c.Index < 0 {
		return
	}
	text, err := json.Marshal(row)
	if err == nil {
		err = c.RunDir.WriteReach(c.Attempt, c.Index, text)
	}
	if err != nil {
		c.Log.Warn("what this agent tried cannot be left for agent 0", "error", err)
	}
}

// removeTries takes the word back: this agent has got through.
func (c AgentConfig) removeTries() {
	if c.RunDir == nil {
		return
	}
	if err := c.RunDir.RemoveReach(c.Attempt, c.Index); err != nil {
		c.Log.Warn("what this agent tried cannot be removed", "error", err)
	}
}

// savedTries is what agents have left that did not come. Anybody may have written it.
func (c AgentConfig) savedTries(agents []int) []reach.AgentTries {
	if c.RunDir == nil {
		return nil // they show it themselves
	}
	var rows []reach.AgentTries
	for _, index := range agents[:min(len(agents), maxRows)] {
		var row reach.AgentTries
		if text, err := c.RunDir.Reach(c.Attempt, index); err != nil || json.Unmarshal(text, &row) != nil {
			row = reach.AgentTries{}
		}
		if index < len(c.Hosts) || row.From == "" {
			row.From = c.hostOf(index)
		}
		row.Tries = row.Tries[:min(len(row.Tries), maxTries)]
		rows = append(rows, row)
	}
	return rows
}
