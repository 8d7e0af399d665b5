package launch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"ddpbatch/mpi/launch/reach"
)

const (
	sayInterval = 10 * time.Second // between two lines that say who is waited for
	maxRows     = 32               // agents of which agent 0 tells what they tried
	maxTries    = 32               // addresses of each
	maxReason   = 200              // bytes of what went wrong at one
)

// unmetError is why agents did not meet, and what those tried that did not get through.
type unmetError struct {
	err  error
	rows []reach.Row
}

func (e *unmetError) Error() string {
	if len(e.rows) == 0 {
		return e.err.Error()
	}
	return e.err.Error() + "\n" + reach.Matrix(e.rows)
}

func (e *unmetError) Unwrap() error { return e.err }

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

// row is what this agent has tried so far. Ports of one host where the same went wrong are one line.
func (a *approach) row() reach.Row {
	row := reach.Row{From: a.cfg.Host}
	hosts := make(map[[2]string]int)
	more := make(map[int]int)
	a.mu.Lock()
	leftTo := a.leftTo
	a.mu.Unlock()
	for _, try := range a.race.Tries() {
		if try.Addr == a.leftAddr() {
			if try.Err == "" || try.Err == errNoPortLeft.Error() {
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

// leaveRow leaves word for agent 0, which may be all that is ever heard of this agent.
func (c AgentConfig) leaveRow(row reach.Row) {
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

// takeRow takes the word back: this agent has got through.
func (c AgentConfig) takeRow() {
	if c.RunDir == nil {
		return
	}
	if err := c.RunDir.RemoveReach(c.Attempt, c.Index); err != nil {
		c.Log.Warn("what this agent tried cannot be removed", "error", err)
	}
}

// rowsOf is what agents have left that did not come. Anybody may have written it.
func (c AgentConfig) rowsOf(agents []int) []reach.Row {
	if c.RunDir == nil {
		return nil // they show it themselves
	}
	var rows []reach.Row
	for _, index := range agents[:min(len(agents), maxRows)] {
		var row reach.Row
		if text, err := c.RunDir.Reach(c.Attempt, index); err != nil || json.Unmarshal(text, &row) != nil {
			row = reach.Row{}
		}
		if index < len(c.Hosts) || row.From == "" {
			row.From = c.hostOf(index)
		}
		row.Tries = row.Tries[:min(len(row.Tries), maxTries)]
		rows = append(rows, row)
	}
	return rows
}
