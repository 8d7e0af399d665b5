package reach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ddpbatch/internal/backoff"
	"ddpbatch/internal/pause"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/store"
)

// HeadStart is how long an address is tried alone before the next one is tried as well. It is the least that RFC 8305 recommends
// ("Connection Attempt Delay"). The first addresses are the likeliest.
const HeadStart = 100 * time.Millisecond

const (
	firstPause    = 10 * time.Millisecond  // the first pause before an address is tried again: agent 0 may not listen yet
	lastPause     = 250 * time.Millisecond // pauses grow up to this
	unprovedPause = 2 * time.Second        // after another program answered, which may log a line about each try
)

// Try is the result of trying an address.
type Try struct {
	Addr  string        `json:"addr"`
	Count int           `json:"count"` // how often it was tried
	Took  time.Duration `json:"took"`  // the last time
	Err   string        `json:"error,omitempty"`
}

// Race tries several addresses until one of them proves to be the right one. Tries may be called while Run runs.
type Race struct {
	addrs     []string
	headStart time.Duration
	failed    []chan struct{} // closed when the address's first try has failed

	mu     sync.Mutex
	tries  []Try
	winner int
	final  error
}

// finalError is the error that Final returns.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Final wraps an error of prove so that it ends the race for all addresses.
func Final(err error) error { return finalError{err} }

// NewRace returns a race of addresses ("host:port", the likeliest first). Each is tried for headStart before the next one begins,
// or until its first try fails.
func NewRace(addrs []string, headStart time.Duration) *Race {
	r := &Race{addrs: addrs, headStart: headStart, tries: make([]Try, len(addrs)), winner: -1}
	for i, addr := range addrs {
		r.tries[i].Addr = addr
		r.failed = append(r.failed, make(chan struct{}))
	}
	return r
}

// Run returns the first of the addresses at which prove succeeds. They are tried concurrently, each again and again until ctx ends.
// prove gets a context that ends when another address has won. It may still succeed then: the caller must close what it leaves open
// at an address that is not returned. An error from Final ends the race, and Run returns it. Run may be called once.
func (r *Race) Run(ctx context.Context, prove func(ctx context.Context, addr string) error) (string, error) {
	if len(r.addrs) == 0 {
		return "", errors.New("no address was offered")
	}
	raceCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i := range r.addrs {
		wg.Go(func() {
			if r.wait(raceCtx, i) && r.try(raceCtx, i, prove) {
				cancel()
			}
		})
	}
	wg.Wait()
	switch {
	case r.winner >= 0:
		return r.addrs[r.winner], nil
	case r.final != nil:
		return "", r.final
	}
	return "", fmt.Errorf("none of the addresses leads to agent 0: %w", context.Cause(ctx))
}

// Tries returns the result of each address so far.
func (r *Race) Tries() []Try {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tries)
}

// wait waits until the addresses before i have had their head start. It returns false if ctx has ended.
func (r *Race) wait(ctx context.Context, i int) bool {
	if i == 0 || r.headStart == 0 {
		return true
	}
	timer := time.NewTimer(time.Duration(i) * r.headStart)
	defer timer.Stop()
	select {
	case <-r.failed[i-1]:
		return true
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// try tries address i, and reports whether that ended the race: the address was the first to be proved, or the error is final.
func (r *Race) try(ctx context.Context, i int, prove func(context.Context, string) error) bool {
	for again := (backoff.Backoff{First: firstPause, Most: lastPause}); ctx.Err() == nil; {
		begun := time.Now()
		err := prove(ctx, r.addrs[i])
		if ctx.Err() != nil && err != nil {
			return false // another address has won, or the time is over: the result of the try before says more
		}
		first, over := r.note(i, time.Since(begun), err)
		if err == nil || over {
			return over
		}
		if first {
			close(r.failed[i])
		}
		wait := again.Next()
		if store.Unproved(err) {
			wait = unprovedPause
		}
		if pause.For(ctx, wait) != nil {
			return false
		}
	}
	return false
}

// note records how a try ended. It reports whether it was the address's first, and whether it ended the race.
func (r *Race) note(i int, took time.Duration, err error) (first, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.tries[i]
	t.Count++
	t.Took, t.Err = took, ""
	var final finalError
	switch {
	case errors.As(err, &final):
		r.final = fmt.Errorf("%s: %w", r.addrs[i], err)
		fallthrough
	case err != nil:
		t.Err = err.Error()
	case r.winner < 0:
		r.winner = i
	}
	return t.Count == 1, r.winner == i || final.error != nil
}

// AgentTries is the result of one machine's tries to reach another.
type AgentTries struct {
	From  string `json:"from"`
	Tries []Try  `json:"tries"`
}

// Matrix returns a table for people of who reached what, with a line for each machine and address.
func Matrix(rows []AgentTries) string {
	var b strings.Builder
	table := text.NewTable(&b, true, false, "FROM", "TO", "TRIES", "RESULT")
	for _, row := range rows {
		if len(row.Tries) == 0 {
			table.Row(cell(row.From), "-", "0", "nothing is known of it")
		}
		for _, try := range row.Tries {
			result := "reached in " + try.Took.Round(100*time.Microsecond).String()
			switch {
			case try.Err != "":
				result = cell(try.Err)
			case try.Count == 0:
				result = "no answer"
			}
			table.Row(cell(row.From), cell(try.Addr), strconv.Itoa(try.Count), result)
		}
	}
	_ = table.Flush() // to memory
	return strings.TrimSuffix(b.String(), "\n")
}

// cell cuts a text from another machine to what fits into a cell of the table.
func cell(s string) string {
	const longest = 200
	if s = text.Clean(s); len(s) > longest {
		s = text.Cut(s, longest) + "..."
	}
	return s
}
