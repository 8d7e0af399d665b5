package recovery

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
)

// TestEveryLifeEndsWithinItsBudget simulates runs from their first to their last attempt. Their attempts end at random. A run never
// exceeds a budget, and ends after a bounded number of attempts.
func TestEveryLifeEndsWithinItsBudget(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := Policy{MaxRestarts: rng.IntN(3), Max: map[Cause]int{}, NoProgress: rng.IntN(5)}
		budgets := 0
		for _, c := range Causes() {
			if rng.IntN(2) == 0 {
				p.On = append(p.On, c)
			}
			if rng.IntN(2) == 0 || c == Preempt {
				p.Max[c] = rng.IntN(6)
			}
			budgets += p.budget(c)
		}
		var history []rundir.Event
		used, restarts, now := map[Cause]int{}, 0, noon
		ends := Causes()
		over := false
		// each requeue is charged to a budget, and each job has MaxRestarts
		most := (budgets + 1) * (p.MaxRestarts + 1)
		for attempt := 1; !over; attempt++ {
			if attempt > most {
				t.Fatalf("seed %d: attempt %d under %+v", seed, attempt, p)
			}
			now = now.Add(time.Duration(rng.IntN(600)) * time.Second)
			history = append(history, rundir.Event{Time: now.Add(-time.Minute), Event: rundir.EventBegin, Attempt: attempt})
			v := rundir.Verdict{Attempt: attempt, Cause: string(ends[rng.IntN(len(ends))]), Exit: 1, Step: int64(attempt),
				Time: now, OOM: rng.IntN(9) == 0}
			v.Final, v.Trace = rng.IntN(9) == 0, []string{"", "aa", "bb", "cc"}[rng.IntN(4)]
			if rng.IntN(4) == 0 && CauseOf(v) != Crash {
				v.Exit, v.Saved = exit.Requeue, rng.IntN(2) == 0
			}
			d := Decide(p, history, v, rng.IntN(2) == 0, restarts)
			history = append(history, v.Event())
			if c := CauseOf(v); attempt == 1 && v.Final && (c == Crash || c == OOM) && v.Exit != exit.Requeue && d.Action != GiveUp {
				t.Fatalf("seed %d: %+v after %+v", seed, d, v)
			}
			switch d.Action {
			case Restart:
				if restarts++; restarts > p.MaxRestarts {
					t.Fatalf("seed %d: restart %d of %d", seed, restarts, p.MaxRestarts)
				}
			case Requeue:
				used[d.Cause]++
				if given, ok := p.Max[d.Cause]; ok && used[d.Cause] > given || used[d.Cause] > max(given, d.Cause.Budget()) {
					t.Fatalf("seed %d: requeue %d for %s under %+v", seed, used[d.Cause], d.Cause, p)
				}
				history = append(history, rundir.Event{Time: now, Event: rundir.EventRequeue, Attempt: attempt, Cause: string(d.Cause)})
				restarts = 0
			default:
				over = true
			}
			if d.Why == "" {
				t.Fatalf("seed %d: %+v does not say why", seed, d)
			}
		}
	}
}

// A larger budget, or more restarts, does not end a run that goes on with less.
func TestLargerBudgetEndsNoRunEarlier(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := new(story)
		for range rng.IntN(8) {
			c := Causes()[rng.IntN(len(Causes()))]
			s.lived(time.Duration(rng.IntN(600))*time.Second, c, int64(rng.IntN(4)), "n1")
			if rng.IntN(2) == 0 {
				s.then(rundir.EventRequeue, c)
			}
		}
		cause := Causes()[rng.IntN(len(Causes()))]
		history, v := s.last(rundir.Verdict{Cause: string(cause), Exit: 1, Step: int64(rng.IntN(5))})
		less := Policy{On: []Cause{cause}, Max: map[Cause]int{cause: rng.IntN(4)}, MaxRestarts: rng.IntN(3), NoProgress: 1 + rng.IntN(4)}
		more := Policy{On: Causes(), Max: map[Cause]int{cause: less.Max[cause] + rng.IntN(3)}, MaxRestarts: less.MaxRestarts + rng.IntN(2),
			NoProgress: less.NoProgress + rng.IntN(2)}
		room := rng.IntN(2) == 0
		a, b := Decide(less, history, v, room, 1), Decide(more, history, v, room, 1)
		if a.Action != GiveUp && b.Action == GiveUp {
			t.Fatalf("seed %d: %+v under %+v, but %+v under %+v", seed, a, less, b, more)
		}
	}
}

// FuzzLedger checks that the decision follows the verdict's own rules and the budget, whatever the ledger holds.
func FuzzLedger(f *testing.F) {
	f.Add([]byte(`[{"event":"begin","attempt":1},{"event":"end","attempt":1,"cause":"crash","step":3},`+
		`{"event":"requeue","cause":"crash"}]`), "crash", 1, int64(3), true)
	f.Add([]byte(`[{"event":"refused","cause":"node"},{"event":"end","attempt":-1,"nodes":["",""],"step":-5}]`),
		"node", 75, int64(-1), false)
	f.Fuzz(func(t *testing.T, text []byte, cause string, code int, step int64, room bool) {
		var history []rundir.Event
		if json.Unmarshal(text, &history) != nil {
			return
		}
		v := rundir.Verdict{Attempt: 1, Cause: cause, Exit: code, Step: step}
		p := Policy{On: Causes(), MaxRestarts: 1, Max: map[Cause]int{Crash: 1}}
		d := Decide(p, history, v, room, 0)
		requeues := 0
		for _, e := range history {
			switch {
			case Cause(e.Cause) != Crash:
			case e.Event == rundir.EventRequeue:
				requeues++
			case e.Event == rundir.EventRefused:
				requeues = max(0, requeues-1)
			}
		}
		switch {
		case d.Why == "":
			t.Fatalf("%+v does not say why", d)
		case d.Action == Finish && (code != 0 || cause != "done"),
			code == exit.Never && d.Action != GiveUp,
			cause == "cancelled" && d.Action != GiveUp,
			d.Action == Restart && !room,
			d.Action == Requeue && d.Cause == Crash && requeues >= 1:
			t.Fatalf("%+v after exit %d, %q with %d requeues", d, code, cause, requeues)
		}
	})
}
