package rendezvous

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/reach"
)

const (
	maxRows   = 32  // agents of which agent 0 tells what they tried
	maxTries  = 32  // addresses of each
	maxReason = 200 // bytes of what went wrong at one
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
		try.Err = text.Cut(try.Err, maxReason)
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

// savedPort is what agent 0 writes to its own file in reach/, where every other agent writes what it has tried.
type savedPort struct {
	Port int `json:"port"`
}

func (c Config) savePort(port int) error {
	text, err := json.Marshal(savedPort{port})
	if err != nil {
		return err
	}
	return c.RunDir.WriteReach(c.Attempt, 0, text)
}

// errNoSavedPort: agent 0 has left no port, as a rule because it listens at one of those that all know.
var errNoSavedPort = errors.New("agent 0 tells of no other port")

// savedPort is the port that agent 0 has left. Whoever may have written it: an agent proves itself there.
func (c Config) savedPort() (int, error) {
	text, err := c.RunDir.Reach(c.Attempt, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, errNoSavedPort
	}
	var left savedPort
	if err == nil {
		err = json.Unmarshal(text, &left)
	}
	if err == nil && !isPort(left.Port) {
		err = fmt.Errorf("%d is not a port", left.Port)
	}
	if err != nil {
		return 0, fmt.Errorf("read the port of agent 0 in the run directory: %w", err)
	}
	return left.Port, nil
}
