package supervise

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/store"
)

// Slurm may kill agent 0 before the workers have ended: what it writes down when they are told to end says how long they had by then.
func TestEarlyVerdictSaysHowLongWorkersHad(t *testing.T) {
	c := one(newRunDir(t))
	synctest.Test(t, func(t *testing.T) {
		s := &Supervisor{cfg: c, round: &round{agent: &Agent{}}, warnedAt: time.Now()}
		time.Sleep(90 * time.Second)
		v := c.Verdict(causeCancelled, exitSignal+int(syscall.SIGTERM), "told")
		v.Signal = int(syscall.SIGTERM)
		s.receiveOutcome(v)
		s.writes.Wait()
	})
	if v, err := c.RunDir.Verdict(1); err != nil || v.WarnedS != 90 {
		t.Errorf("the early verdict is %+v, %v; want 90 s", v, err)
	}
}

// Where attempts before took long to save, their successors are warned earlier.
func TestWarnsAsEarlyAsSavesTake(t *testing.T) {
	slow := rundir.Event{Event: rundir.EventEnd, Attempt: 1, Cause: "timeout", Saved: true, WarnedS: 240}
	for name, tc := range map[string]struct {
		history []rundir.Event
		limit   time.Duration
		warned  time.Duration // before the end
		why     string
	}{
		"as the policy says":      {nil, time.Hour, 2 * time.Minute, "the job ends at 12:00:00"},
		"longer":                  {[]rundir.Event{slow}, time.Hour, 6 * time.Minute, "the job ends at 12:00:00; warned 6m0s before it, as an earlier attempt took 4m0s from its warning to its end"},
		"half of what there is":   {[]rundir.Event{slow}, 8 * time.Minute, 4 * time.Minute, "the job ends at 12:00:00; warned 4m0s before it, as an earlier attempt took 4m0s from its warning to its end"},
		"of this attempt's own":   {[]rundir.Event{{Event: rundir.EventEnd, Attempt: 2, Cause: "timeout", Saved: true, WarnedS: 240}}, time.Hour, 2 * time.Minute, "the job ends at 12:00:00"},
		"a lead that is too long": {[]rundir.Event{slow}, 3 * time.Minute, 2 * time.Minute, "the job ends at 12:00:00"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRunDir(t)
			for _, e := range tc.history {
				must(t, dir.Append(e))
			}
			_, err := dir.ClaimAttempt()
			must(t, err)
			synctest.Test(t, func(t *testing.T) {
				noon := time.Date(2100, 1, 1, 12, 0, 0, 0, time.Local)
				time.Sleep(time.Until(noon.Add(-tc.limit)))
				c := one(dir)
				c.Attempt, c.Deadline, c.Policy.Lead = 2, noon, 2*time.Minute
				m := &met{store: store.NewMemory()}
				a := agentOf(t, c, m)
				a.warnInTime()
				got, err := rendezvous.GetJSON[warning](t.Context(), m.store, keyWarn)
				must(t, err)
				if before := time.Until(noon); before != tc.warned || got.Why != tc.why {
					t.Errorf("warned %v before the end: %q", before, got.Why)
				}
				s := &Supervisor{cfg: c, round: &round{agent: a}}
				s.receiveOutcome(c.Verdict(causeCancelled, exitSignal+int(syscall.SIGTERM), "told"))
				s.writes.Wait()
				if v, err := dir.Verdict(2); err != nil || v.LeadS != tc.warned.Seconds() {
					t.Errorf("the verdict is %+v, %v; want a lead of %v", v, err, tc.warned)
				}
			})
		})
	}
}

// A limit may be moved while the job runs: the warning comes before the one that holds then, and the next round's workers hear of it.
func TestWarnsBeforeTheEndThatHolds(t *testing.T) {
	const never = -1
	limit := func(ends ...time.Duration) []any { // answers
		var answers []any
		for _, end := range ends {
			answers = append(answers, end)
		}
		return answers
	}
	for name, tc := range map[string]struct {
		answers []any         // how long after the start the job ends, 0: it does not; or an error
		warned  time.Duration // after the start
		end     time.Duration // as workers are told
		logged  string
	}{
		"nobody to ask":  {nil, 58 * time.Minute, time.Hour, ""},
		"as it was":      {limit(time.Hour), 58 * time.Minute, time.Hour, ""},
		"rounded":        {limit(time.Hour + time.Second), 58 * time.Minute, time.Hour, ""},
		"put off":        {limit(2*time.Hour, 2*time.Hour), 118 * time.Minute, 2 * time.Hour, "put off"},
		"twice":          {limit(2*time.Hour, 3*time.Hour, 3*time.Hour), 178 * time.Minute, 3 * time.Hour, "put off"},
		"made shorter":   {limit(59 * time.Minute), 58 * time.Minute, time.Hour, ""},
		"taken away":     {limit(0), never, 0, "no time limit any more"},
		"no answer":      {[]any{errors.New("no squeue here")}, 58 * time.Minute, time.Hour, "is not known"},
		"then no answer": {[]any{2 * time.Hour, errors.New("no squeue here")}, 118 * time.Minute, 2 * time.Hour, "put off"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, log := time.Now(), &bytes.Buffer{}
				c := Config{
					Log:    slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
					JobEnd: JobEnd{Deadline: begin.Add(time.Hour)},
					Policy: recovery.Policy{Lead: 2 * time.Minute},
				}
				if tc.answers != nil {
					c.FindDeadline = func(context.Context) (time.Time, error) {
						answer := tc.answers[0]
						tc.answers = tc.answers[1:]
						switch answer := answer.(type) {
						case error:
							return time.Time{}, answer
						case time.Duration:
							if answer > 0 {
								return begin.Add(answer), nil
							}
						}
						return time.Time{}, nil
					}
				}
				m := &met{store: store.NewMemory()}
				a := agentOf(t, complete(c), m)
				a.warnInTime()
				warned, err := m.store.Check(t.Context(), keyWarn)
				must(t, err)
				if after := time.Since(begin); warned != (tc.warned != never) || warned && after != tc.warned {
					t.Errorf("warned %t, %v after the start", warned, after)
				}
				end := a.Deadline()
				if want := begin.Add(tc.end); tc.end > 0 && !end.Equal(want) || tc.end == 0 && !end.IsZero() {
					t.Errorf("workers are told %v, want %v after the start", end.Sub(begin), tc.end)
				}
				if text := log.String(); !strings.Contains(text, tc.logged) || tc.logged == "" && text != "" {
					t.Errorf("logged %q, want %q", text, tc.logged)
				}
				if len(tc.answers) > 0 {
					t.Errorf("it was not asked for %v", tc.answers)
				}
			})
		})
	}
}
