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
	maxRows   = 32  // agents whose tries agent 0 shows
	maxTries  = 32  // addresses of each
	maxReason = 200 // bytes of an address's error
)

// NotMetError is the reason why agents did not meet, with the addresses that were tried.
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

// tries lists what this agent has tried so far. Ports of one host with the same error are one entry.
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
				continue // no port was saved that could be tried
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

// saveTries saves the tries for agent 0, which may never receive anything else from this agent.
func (c Config) saveTries(row reach.AgentTries) {
	if c.RunDir == nil || c.Index < 0 {
		return
	}
	text, err := json.Marshal(row)
	if err == nil {
		err = c.RunDir.WriteReach(c.Attempt, c.Index, text)
	}
	if err != nil {
		c.Log.Warn("could not save for agent 0 what this agent tried", "error", err)
	}
}

// removeTries removes the saved tries: this agent has got through.
func (c Config) removeTries() {
	if c.RunDir == nil {
		return
	}
	if err := c.RunDir.RemoveReach(c.Attempt, c.Index); err != nil {
		c.Log.Warn("could not remove the record of what this agent tried", "error", err)
	}
}

// savedTries returns the tries that agents which did not come have saved. Anybody may have written them.
func (c Config) savedTries(agents []int) []reach.AgentTries {
	if c.RunDir == nil {
		return nil // they show their tries themselves
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

// savedPort is what agent 0 writes to its file in reach/, where each other agent saves its tries.
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

// errNoSavedPort means that agent 0 has not saved a port, usually because it listens at one that all agents know.
var errNoSavedPort = errors.New("agent 0 has not saved another port")

// savedPort is the port that agent 0 has saved. Anybody may have written it, but both sides prove themselves there.
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
