package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	maxLedger = 64 << 20 // bytes; an attempt adds two lines
	maxDetail = 4 << 10  // bytes of an event's text
)

// Event is a line of ledger.jsonl.
type Event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // "submit", "begin", "end", "cancel", "resume"
	Attempt int       `json:"attempt,omitempty"`
	Cause   string    `json:"cause,omitempty"` // as in Verdict
	Node    string    `json:"node,omitempty"`
	Step    int64     `json:"step,omitempty"`
	Detail  string    `json:"detail,omitempty"` // cut after 4 KiB
}

// Append adds e to the ledger in one write, durably. A line that a crash cut
// short stays alone: the new one begins after it.
func (d *Dir) Append(e Event) error {
	if err := d.append(e); err != nil {
		return fmt.Errorf("add to the run's ledger: %w", err)
	}
	return nil
}

func (d *Dir) append(e Event) (err error) {
	if len(e.Detail) > maxDetail {
		e.Detail = strings.ToValidUTF8(e.Detail[:maxDetail], "")
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.path, ledgerName), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	cut, err := cutShort(f)
	if err != nil {
		return err
	}
	if cut {
		line = append([]byte{'\n'}, line...)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Sync()
}

// cutShort tells whether the last line of f has no end.
func cutShort(f *os.File) (bool, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return false, err
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], size-1)
	return last[0] != '\n', err
}

// Ledger reads every event, oldest first; none where there is no ledger yet.
// Lines that a crash cut short are left out.
func (d *Dir) Ledger() ([]Event, error) {
	data, err := readFile(filepath.Join(d.path, ledgerName), maxLedger)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the run's ledger: %w", err)
	}
	return parseLedger(data), nil
}

func parseLedger(data []byte) []Event {
	var events []Event
	for line := range bytes.Lines(data) {
		var e Event
		if json.Unmarshal(line, &e) == nil && e.Event != "" {
			events = append(events, e)
		}
	}
	return events
}
