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

// watchesEnd runs watchEnd for a day at most, and returns how long it ran.
func watchesEnd(a *Agent) time.Duration {
	begin := time.Now()
	day := time.AfterFunc(24*time.Hour, a.cancel)
	defer day.Stop()
	a.watchEnd()
	return time.Since(begin)
}

// If Slurm's signal comes up to a minute before the warning is due, the warning waits until then. Any other signal counts at once.
func TestSignalWaitsUntilItIsDue(t *testing.T) {
	const lead = 10 * time.Second
	type job struct {
		end       time.Duration // the job's end as known at the start; 0: not known
		now       time.Duration // the end that Slurm reports when the signal comes; 0: Slurm cannot be asked, or the job has no end
		silent    bool          // Slurm does not answer
		preempted bool
		late      time.Duration // the end that Slurm reports later; 0: as now
	}
	for name, tc := range map[string]struct {
		job     job
		builtin bool
		signal  time.Duration
		warned  time.Duration
		why     string // the beginning of the reason
	}{
		"37 s before the end of a one-minute job": {job{end: time.Minute, now: time.Minute}, false, 23 * time.Second,
			50 * time.Second, "the job ends at "},
		"the built-in trainer's": {job{end: time.Minute, now: time.Minute}, true, 23 * time.Second,
			50 * time.Second, "the job ends at "},
		"nobody to ask": {job{end: time.Minute}, false, 23 * time.Second, 50 * time.Second, "the job ends at "},
		"in time": {job{end: time.Minute, now: time.Minute}, true, 51 * time.Second,
			51 * time.Second, signalCame},
		"a minute early": {job{end: time.Hour, now: time.Hour}, false, time.Hour - 70*time.Second,
			time.Hour - lead, "the job ends at "},
		"long before the end": {job{end: time.Hour, now: time.Hour}, false, 20 * time.Minute,
			20 * time.Minute, signalCame},
		"the limit was shortened": {job{end: time.Hour, now: 21 * time.Minute}, false, 20*time.Minute + 10*time.Second,
			21*time.Minute - lead, "the job ends at "},
		"the limit was put off": {job{end: time.Hour, now: 2 * time.Hour}, false, 2*time.Hour - 30*time.Second,
			2*time.Hour - lead, "the job ends at "},
		"put off after the signal": {job{end: time.Minute, now: time.Minute, late: 2 * time.Minute}, false, 23 * time.Second,
			2*time.Minute - lead, "the job ends at "},
		"the same of the trainer": {job{end: time.Minute, now: time.Minute, late: 2 * time.Minute}, true, 23 * time.Second,
			2*time.Minute - lead, "the job ends at "},
		"preempted": {job{end: time.Hour, now: 20*time.Minute + 30*time.Second, preempted: true}, false,
			20 * time.Minute, 20 * time.Minute, signalCame},
		"preempted near the end": {job{end: time.Minute, now: time.Minute, preempted: true}, false, 23 * time.Second,
			23 * time.Second, signalCame},
		"Slurm does not answer": {job{end: time.Minute, now: time.Minute, silent: true}, false, 23 * time.Second,
			23 * time.Second, signalCame},
		"no end is known": {job{}, false, 23 * time.Second, 23 * time.Second, signalCame},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				c := Config{Policy: recovery.Policy{Lead: lead}}
				c.Builtin = tc.builtin
				if tc.job.end > 0 {
					c.Deadline = begin.Add(tc.job.end)
				}
				answer := errors.New("no squeue here")
				if !tc.job.silent {
					answer = nil
				}
				if tc.job.now > 0 {
					c.FindDeadline = func(context.Context) (time.Time, error) {
						if time.Since(begin) > tc.signal && tc.job.late > 0 {
							return begin.Add(tc.job.late), answer
						}
						if time.Since(begin) < tc.signal { // watchEnd asks before the signal if the known end is near
							return begin.Add(tc.job.now), nil
						}
						return begin.Add(tc.job.now), answer
					}
					c.IsPreempted = func(context.Context) (bool, error) { return tc.job.preempted, nil }
				}
				m := &met{store: store.NewMemory()}
				a := agentOf(t, complete(c), m)
				time.AfterFunc(tc.signal, func() { a.takeSignal(warning{Host: "n1", Why: signalCame}) })
				after := watchesEnd(a)
				got, err := rendezvous.GetJSON[warning](t.Context(), m.store, keyWarn)
				must(t, err)
				if after != tc.warned || !strings.HasPrefix(got.Why, tc.why) {
					t.Errorf("warned %v after the start, as %q; want %v", after, got.Why, tc.warned)
				}
			})
		})
	}
}

// A signal that comes while another one is held back counts, too, because it may announce a preemption.
func TestSecondSignalIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := Config{Policy: recovery.Policy{Lead: 10 * time.Second}, JobEnd: JobEnd{Deadline: begin.Add(time.Minute)}}
		c.IsPreempted = func(context.Context) (bool, error) { return time.Since(begin) > 30*time.Second, nil }
		a := agentOf(t, complete(c), &met{store: store.NewMemory()})
		for _, at := range []time.Duration{23 * time.Second, 40 * time.Second} {
			time.AfterFunc(at, func() { a.takeSignal(warning{Host: "n1", Why: signalCame}) })
		}
		if after := watchesEnd(a); after != 40*time.Second {
			t.Errorf("warned %v after the start, want 40s", after)
		}
	})
}

// If earlier attempts took long to save, later ones are warned earlier.
func TestWarnsAsEarlyAsSavesTake(t *testing.T) {
	slow := rundir.Event{Event: rundir.EventEnd, Attempt: 1, Cause: "timeout", Saved: true, WarnedS: 240}
	for name, tc := range map[string]struct {
		history []rundir.Event
		limit   time.Duration
		warned  time.Duration // before the end
		why     string
	}{
		"as the policy says": {nil, time.Hour, 2 * time.Minute, "the job ends at 12:00:00"},
		"longer": {[]rundir.Event{slow}, time.Hour, 6 * time.Minute,
			"the job ends at 12:00:00; warned 6m0s before it, because an earlier attempt took 4m0s from its warning to its end"},
		"half of what there is": {[]rundir.Event{slow}, 8 * time.Minute, 4 * time.Minute,
			"the job ends at 12:00:00; warned 4m0s before it, because an earlier attempt took 4m0s from its warning to its end"},
		"of this attempt's own": {[]rundir.Event{{Event: rundir.EventEnd, Attempt: 2, Cause: "timeout", Saved: true, WarnedS: 240}},
			time.Hour, 2 * time.Minute, "the job ends at 12:00:00"},
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
				a.watchEnd()
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

// If the time limit changes while the job runs, the warning comes before the new end, and the next round's workers get the new deadline.
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
		answers []any         // time from the start to the job's end, 0: the job has no end; or an error
		warned  time.Duration // after the start
		end     time.Duration // the deadline that workers get
		logged  string
	}{
		"nobody to ask":  {nil, 58 * time.Minute, time.Hour, ""},
		"as it was":      {limit(time.Hour), 58 * time.Minute, time.Hour, ""},
		"rounded":        {limit(time.Hour + time.Second), 58 * time.Minute, time.Hour, ""},
		"put off":        {limit(2*time.Hour, 2*time.Hour), 118 * time.Minute, 2 * time.Hour, "put off"},
		"twice":          {limit(2*time.Hour, 3*time.Hour, 3*time.Hour), 178 * time.Minute, 3 * time.Hour, "put off"},
		"made shorter":   {limit(59 * time.Minute), 58 * time.Minute, time.Hour, ""},
		"taken away":     {limit(0), never, 0, "no time limit any more"},
		"no answer":      {[]any{errors.New("no squeue here")}, 58 * time.Minute, time.Hour, "could not find out"},
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
				after := watchesEnd(a)
				warned, err := m.store.Check(t.Context(), keyWarn)
				must(t, err)
				if warned != (tc.warned != never) || warned && after != tc.warned {
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
