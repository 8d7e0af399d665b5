package rendezvous

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/reach"
	"ddpbatch/mpi/launch/recovery"
)

// reject is all that an agent does that cannot take part: it tells the others why, so that they do not wait for it. The error is
// the reason.
func (c Config) reject(ctx context.Context) error {
	if c.Count > 1 {
		say := time.AfterFunc(firstLook, func() { // else the error is soon enough
			c.Log.Warn("this agent cannot take part, and waits for the others to tell them so", "error", c.Reject)
		})
		defer say.Stop()
		c.Log.Debug("this agent has said to the others that it cannot take part", "answer", c.publishRejection(ctx))
	}
	return c.Reject
}

// rejectWait is how long those are waited for that have not heard yet that the run will not begin.
const rejectWait = 10 * time.Second

// publishRejection tells the others why this agent rejects, at the place where they look for agent 0 or by agent 0. The error is the answer.
func (c Config) publishRejection(ctx context.Context) error {
	if c.Exchange == nil { // which ends when all have called it
		c.JoinTimeout = min(c.JoinTimeout, rejectWait)
	}
	c.joinBy = c.joinEnd()
	var l listeners
	var err error
	switch {
	case c.Index == 0 && c.Exchange != nil:
		return c.exchangeOffer(ctx, offer{Run: c.RunID, Rejected: c.rejection()})
	case c.Index == 0:
		l, err = c.listen(localNetwork{})
	case c.Index < 0 && !c.DialOnly:
		l, err = c.claimEndpoint(ctx, localNetwork{})
	}
	switch {
	case l != nil:
		c.Index = 0
		_, err = serveRendezvous(ctx, c, localNetwork{}, l) // which ends in the reason
		return err
	case err != nil && !errors.Is(err, syscall.EADDRINUSE), c.Index == 0:
		return err
	}
	r, err := dialRendezvous(ctx, c, localNetwork{}) // whose error is the echo of the reason, or that agent 0 is not there
	if err == nil {
		err = r.Close()
	}
	return err
}

// rejection is what the others hear.
func (c Config) rejection() *Rejection {
	r := *RejectionOf(c.Reject)
	r.Message = fmt.Sprintf("%s cannot take part: %s", c.who(), r.Message)
	return &r
}

// ErrTimeout: not all agents of the run came in time.
var ErrTimeout = errors.New("the time for all agents to meet is over")

// Rejection is an error that travels between agents.
type Rejection struct {
	Cause   string `json:"cause"`
	Exit    int    `json:"exit"`
	Signal  int    `json:"signal,omitempty"`
	Message string `json:"message"`
}

func (r *Rejection) Error() string { return r.Message }

// RejectionOf classifies why the agents did not meet.
func RejectionOf(err error) *Rejection {
	var (
		known  *Rejection
		lost   *LostError
		unmet  *NotMetError
		signal SignalError
	)
	r := &Rejection{Cause: string(recovery.Start), Exit: 1, Message: err.Error()}
	if errors.As(err, &unmet) {
		r.Message = unmet.err.Error()
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &signal):
		r.Cause, r.Signal, r.Exit = string(recovery.Cancelled), int(signal.Sig), 128+int(signal.Sig)
	case errors.Is(err, context.Canceled):
		r.Cause, r.Signal, r.Exit = string(recovery.Cancelled), int(syscall.SIGTERM), 128+int(syscall.SIGTERM)
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		r.Cause, r.Exit = string(recovery.Timeout), exit.Timeout
	case errors.As(err, &lost):
		r.Cause = string(recovery.Node)
	case errors.Is(err, rundir.ErrSuperseded):
		r.Exit = exit.Never
	}
	return r
}

// OverError: this agent came too late to have a part in the run, which ended so.
type OverError struct{ Last rundir.Verdict }

func (e *OverError) Error() string { return "the run is over: " + e.Last.Message }

const (
	sayInterval = 10 * time.Second // between two lines that say who is waited for
	maxRows     = 32               // agents of which agent 0 tells what they tried
	maxTries    = 32               // addresses of each
	maxReason   = 200              // bytes of what went wrong at one
)

// NotMetError is why agents did not meet, and what those tried that did not get through.
type NotMetError struct {
	err  error
	Rows []reach.AgentTries
}

func (e *NotMetError) Error() string {
	if len(e.Rows) == 0 {
		return e.err.Error()
	}
	return e.err.Error() + "\n" + reach.Matrix(e.Rows)
}

func (e *NotMetError) Unwrap() error { return e.err }

// sayEvery calls say now and then, with the time since, until the returned function is called.
func (c Config) sayEvery(say func(since time.Duration)) (stop func()) {
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
func (c Config) saveTries(row reach.AgentTries) {
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
func (c Config) removeTries() {
	if c.RunDir == nil {
		return
	}
	if err := c.RunDir.RemoveReach(c.Attempt, c.Index); err != nil {
		c.Log.Warn("what this agent tried cannot be removed", "error", err)
	}
}

// savedTries is what agents have left that did not come. Anybody may have written it.
func (c Config) savedTries(agents []int) []reach.AgentTries {
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

// SignalError is the cause with which the caller cancels Run's context
// (context.WithCancelCause) when the agent got a signal that means stop.
type SignalError struct{ Sig syscall.Signal }

func (e SignalError) Error() string { return "told to stop by " + text.SignalName(e.Sig) }
