package mpi

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/tick"
)

const (
	maxRecorded = 1000 // the number of operations that a recorder keeps
	recordSlots = 1024 // the number of its slots: a power of two is faster to count with
)

// recorder keeps the last operations of a rank, to be read when the rank has failed.
type recorder struct {
	clock tick.Clock

	mu      sync.Mutex
	records [recordSlots]record
	count   uint64
	written bool
}

// record is one operation.
type record struct {
	number    uint64
	call      engine.Call
	algorithm string
	from, to  tick.Count // to is 0 while the operation runs
	err       error
}

func newRecorder() *recorder { return &recorder{clock: tick.NewClock()} }

// begin records that an operation begins, and returns its number.
func (r *recorder) begin(call *engine.Call, algorithm string, now tick.Count) uint64 {
	r.mu.Lock()
	r.count++
	number := r.count
	e := &r.records[number%recordSlots]
	e.number, e.call, e.algorithm, e.from, e.to = number, *call, algorithm, now, 0
	if e.err != nil {
		e.err = nil
	}
	r.mu.Unlock()
	return number
}

// end records that the operation has ended.
func (r *recorder) end(number uint64, err error, now tick.Count) {
	r.mu.Lock()
	if e := &r.records[number%recordSlots]; e.number == number {
		e.to = now
		if err != nil {
			e.err = err
		}
	}
	r.mu.Unlock()
}

// flightLine is an operation in the form in which it is written.
type flightLine struct {
	Number    uint64    `json:"number"`
	Call      string    `json:"call"`
	Group     string    `json:"group"`
	Algorithm string    `json:"algorithm,omitempty"`
	Begun     time.Time `json:"begun"`
	Micros    float64   `json:"us,omitempty"` // how long it took
	State     string    `json:"state"`        // running, done or failed
	Error     string    `json:"error,omitempty"`
}

// write writes the recorded operations, oldest first, as lines of JSON.
func (r *recorder) write(w io.Writer) error {
	out, scale := json.NewEncoder(w), r.clock.Scale()
	for _, e := range r.snapshot() {
		l := flightLine{
			Number: e.number, Call: describe(e.call), Group: fmt.Sprintf("%x", e.call.Group), Algorithm: e.algorithm,
			Begun: scale.Time(e.from), State: "running",
		}
		if e.to != 0 {
			l.State, l.Micros = "done", float64(scale.Time(e.to).Sub(l.Begun).Nanoseconds())/1e3
		}
		if e.err != nil {
			l.State, l.Error = "failed", e.err.Error()
		}
		if err := out.Encode(l); err != nil {
			return fmt.Errorf("write the flight recorder: %w", err)
		}
	}
	return nil
}

func (r *recorder) snapshot() []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []record
	for number := r.count - min(r.count, maxRecorded) + 1; number <= r.count; number++ {
		kept = append(kept, r.records[number%recordSlots])
	}
	return kept
}

// WriteFlight writes the last 1,000 operations of this rank's Comms to w, oldest first. Each line is a JSON object with the fields number,
// call, group, algorithm, begun, us (how long it took, in microseconds), state (running, done or failed) and error.
func (c *Comm) WriteFlight(w io.Writer) error { return c.core.world.recorder.write(w) }

// writeFlight writes the recorder's file, once. It cannot return an error, because the failure that makes it write is being returned
// already. It logs the error instead.
func (w *world) writeFlight() {
	w.recorder.mu.Lock()
	again := w.recorder.written
	w.recorder.written = true
	w.recorder.mu.Unlock()
	if w.flight == "" || again {
		return
	}
	f, err := os.Create(w.flight)
	if err == nil {
		err = w.recorder.write(f)
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		w.log.Warn("cannot write the flight recorder", "file", w.flight, "err", err)
	}
}
