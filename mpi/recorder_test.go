package mpi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// readFlight decodes what a recorder has written, strictly.
func readFlight(text []byte) ([]flightLine, error) {
	var lines []flightLine
	for _, part := range bytes.SplitAfter(text, []byte("\n")) {
		if len(part) == 0 {
			continue
		}
		var l flightLine
		d := json.NewDecoder(bytes.NewReader(part))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func flightOf(c *Comm) ([]flightLine, error) {
	var text bytes.Buffer
	if err := c.WriteFlight(&text); err != nil {
		return nil, err
	}
	return readFlight(text.Bytes())
}

// The recorder keeps the last 1,000 operations of all of the rank's Comms, oldest first.
func TestRecorderKeepsTheLast(t *testing.T) {
	everywhere(t, []int{1, 2}, func(ctx context.Context, c *Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		for i := range 1200 {
			of := []*Comm{c, d}[i%2]
			if err := AllReduce(ctx, of, make([]int32, i), Sum); err != nil {
				return err
			}
		}
		lines, err := flightOf(c)
		if err != nil {
			return err
		}
		if len(lines) != 1000 {
			return fmt.Errorf("%d operations", len(lines))
		}
		for i, l := range lines {
			count := i + 200
			if l.State != "done" || l.Error != "" || l.Algorithm == "" || l.Micros < 0 || l.Number != lines[0].Number+uint64(i) ||
				!strings.Contains(l.Call, fmt.Sprintf("int32 x %d sum", count)) || i > 0 && l.Begun.Before(lines[i-1].Begun.Add(-1e6)) {
				return fmt.Errorf("operation %d is %+v, want %d elements", i, l, count)
			}
		}
		if c.Size() > 1 && lines[0].Group == lines[1].Group {
			return fmt.Errorf("two groups have the same number %q", lines[0].Group)
		}
		return nil
	})
}

// A running operation is shown as running, and a failed one with its error. The file is written at the first failure, and only then.
func TestRecorderFileIsWrittenAtTheFirstFailure(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "flight.jsonl")
			w := newWorldOn(t, over, 2, func(cfg *InitConfig) {
				if cfg.Rank == 0 && over != "local" {
					cfg.Flight = path
				}
			})
			if over == "local" {
				w[0].core.world.flight = path // InitLocal has one configuration for all ranks
			}
			must(t, testkit.Each(2, func(rank int) error { return Broadcast(t.Context(), w[rank], []float32{1}, 1) }))
			ctx, cancel := context.WithCancel(t.Context())
			r := w[0].IBarrier(ctx)
			testkit.Eventually(t, "the barrier runs", func() bool {
				lines, err := flightOf(w[0])
				return err == nil && len(lines) > 0 && lines[len(lines)-1].State == "running"
			})
			if _, err := os.Stat(path); err == nil {
				t.Error("the file is there before anything has failed")
			}
			cancel()
			if r.Wait(t.Context()) == nil {
				t.Fatal("no error")
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := readFlight(text)
			if err != nil {
				t.Fatal(err)
			}
			sent, last := lines[len(lines)-2], lines[len(lines)-1]
			if sent.State != "done" || !strings.Contains(sent.Call, "broadcast #1 float32 x 1 from rank 1") {
				t.Errorf("the last but one is %+v", sent)
			}
			if last.State != "failed" || !strings.Contains(last.Error, "context canceled") || last.Call != "barrier #2" {
				t.Errorf("the last is %+v", last)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			w[0].Barrier(t.Context())
			if _, err := os.Stat(path); err == nil {
				t.Error("the file was written twice")
			}
		})
	}
}

func TestUnwritableRecorderFileIsLogged(t *testing.T) {
	var log testkit.Journal
	c := newSelf(InitConfig{Config: DefaultConfig(), Flight: filepath.Join(t.TempDir(), "none", "flight"), Log: log.Logger()})
	if err := AllReduce(t.Context(), c, []int32{1}, Standard(0)); err == nil {
		t.Fatal("no error")
	}
	if !strings.Contains(log.String(), "cannot write the flight recorder") {
		t.Errorf("logged %q", log.String())
	}
}
