package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
)

func TestConfigFaults(t *testing.T) {
	tests := []struct {
		name      string
		change    func(*Config)
		complaint string
	}{
		{"rank_negative", func(c *Config) { c.Rank = -1 }, "rank -1 of 2"},
		{"rank_too_high", func(c *Config) { c.Rank = 2 }, "rank 2 of 2"},
		{"size_zero", func(c *Config) { c.Size, c.Rank = 0, 0 }, "rank 0 of 0"},
		{"listen_empty", func(c *Config) { c.Listen = "" }, "no IP address"},
		{"listen_name", func(c *Config) { c.Listen = "localhost" }, "no IP address"},
		{"listen_everywhere", func(c *Config) { c.Listen = "0.0.0.0" }, "cannot connect to 0.0.0.0"},
		{"listen_everywhere_6", func(c *Config) { c.Listen = "::" }, "cannot connect to ::"},
		{"listen_elsewhere", func(c *Config) { c.Listen = "192.0.2.1" }, "listen for the other ranks"}, // TEST-NET-1, RFC 5737
		{"streams_negative", func(c *Config) { c.Streams = -1 }, "-1 TCP streams to each rank: give 1 to 16"},
		{"streams_too_many", func(c *Config) { c.Streams = 17 }, "17 TCP streams to each rank: give 1 to 16"},
		{"no_secret", func(c *Config) { c.Secret = auth.Secret{} }, "no secret is set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(store.NewMemory(), 0, 2)
			tt.change(&cfg)
			_, err := Connect(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), tt.complaint) {
				t.Errorf("got %v, want %q", err, tt.complaint)
			}
		})
	}
}

func TestConnectAlone(t *testing.T) {
	m, err := Connect(t.Context(), testConfig(nil, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Rank() != 0 || m.Size() != 1 {
		t.Errorf("rank %d of %d", m.Rank(), m.Size())
	}
}

// A rank that never comes is named, with what is known of it.
func TestMissingRanks(t *testing.T) {
	tests := []struct {
		name    string
		rank    int // who is there, of 3
		missing []int
		text    string
	}{
		{"higher", 0, []int{1, 2}, "rank 0 of 3 did not meet rank 1 (it has not connected); rank 2 (it has not connected)"},
		{"both_sides", 1, []int{0, 2}, "rank 1 of 3 did not meet rank 0 (it has not published an address); rank 2 (it has not connected)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it waits
			var err error
			var missing *MissingError
			// A busy machine may need the whole time before the rank begins to wait: then it gets more.
			for limit := 100 * time.Millisecond; missing == nil && limit < testkit.Patience; limit *= 4 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				_, err = Connect(ctx, testConfig(store.NewMemory(), tt.rank, 3))
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v", err)
				}
				errors.As(err, &missing)
			}
			if missing == nil {
				t.Fatalf("got %v", err)
			}
			if len(missing.Missing) != len(tt.missing) || missing.Missing[0] != tt.missing[0] || missing.Missing[1] != tt.missing[1] {
				t.Errorf("missing %v, want %v", missing.Missing, tt.missing)
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %q, want %q", err, tt.text)
			}
		})
	}
}

func TestMissingErrorNamesAFew(t *testing.T) {
	e := &MissingError{Rank: 0, Size: 12, Err: context.DeadlineExceeded}
	for rank := 1; rank < 12; rank++ {
		e.Missing, e.Reasons = append(e.Missing, rank), append(e.Reasons, "?")
	}
	if text := e.Error(); !strings.Contains(text, "rank 8 (?); and 3 more: ") || strings.Contains(text, "rank 9") {
		t.Error(text)
	}
}

// One rank has another secret, run, attempt or size: it is refused and logged, the
// others name it.
func TestStrangerRank(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		logged string
	}{
		{"secret", func(c *Config) { c.Secret[0]++ }, auth.ErrUnproved.Error()},
		{"run", func(c *Config) { c.Run = "other" }, auth.ErrUnproved.Error()},
		{"attempt", func(c *Config) { c.Attempt = 2 }, auth.ErrUnproved.Error()},
		{"size", func(c *Config) { c.Size = 4 }, "rank 2 of 4: refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it waits
			// The others must meet before the time is over: where a busy machine is slower, they get more of it.
			limit := 3 * time.Second
			err := strangerComes(t, limit, tt.change, tt.logged)
			for ; err != nil && limit < testkit.Patience; err = strangerComes(t, limit, tt.change, tt.logged) {
				t.Logf("within %v: %v", limit, err)
				limit *= 4
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func strangerComes(t *testing.T, limit time.Duration, change func(*Config), logged string) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	dir := store.NewMemory()
	var log testkit.Journal
	errs := testkit.Each(3, func(rank int) error {
		cfg := testConfig(dir, rank, 3)
		cfg.Log = log.Logger()
		if rank == 2 {
			cfg.Log = nil
			change(&cfg)
		}
		m, err := Connect(ctx, cfg)
		if err == nil {
			m.Close()
		}
		return err
	})
	for rank, err := range errs[:2] {
		var missing *MissingError
		if !errors.As(err, &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 2 {
			return fmt.Errorf("rank %d: got %v, want only rank 2 to be missing", rank, err)
		}
	}
	if errs[2] == nil {
		return errors.New("rank 2 is connected")
	}
	if !strings.Contains(log.String(), logged) {
		return fmt.Errorf("logged %q, want %q", log.String(), logged)
	}
	return nil
}
