package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/mpi/launch/rendezvous"
)

// keyWarn is where whoever comes first puts the warning.
const keyWarn = "warn"

const (
	stopPoll     = time.Second      // between looks for the stop file, at agent 0
	warnAgain    = time.Second      // between looks for a handler of the warning's signal, at first
	warnSeldom   = 15 * time.Second // the same in the end
	deadlineBlur = 5 * time.Second  // within which two answers are one: they count from when they came
)

// warning is why the run is asked to save and end: it goes on until its workers do, or the job is ended.
type warning struct {
	Host string `json:"host"` // whose agent was told
	Why  string `json:"why"`
}

// listenForWarnings begins to hear of warnings, from the caller and from other agents.
func (a *Agent) listenForWarnings() {
	a.tasks.Go(func() {
		if w, err := rendezvous.GetJSON[warning](a.ctx, a.rdzv.Store(), keyWarn); err == nil {
			a.warning = w
			close(a.warned)
		}
	})
	a.tasks.Go(func() {
		select {
		case <-a.cfg.Warn:
			a.warn("the job was warned")
		case <-a.ctx.Done():
		}
	})
}

// warn tells all agents, this one included; the first warning counts.
func (a *Agent) warn(why string) {
	text, err := json.Marshal(warning{a.cfg.Host, why})
	if err == nil {
		_, err = a.rdzv.Store().CompareSet(a.ctx, keyWarn, nil, text)
	}
	if err != nil && a.ctx.Err() == nil {
		a.cfg.Log.Warn("the other agents cannot be warned", "why", why, "error", err)
	}
}

// warnInTime is agent 0's: it warns some time before the job's end. That may have been moved since the job began, so it is asked for once
// more when the time has come. ddpbatch's own trainer looks at the time itself, and hears of another end when its next round begins.
func (a *Agent) warnInTime() {
	c := a.cfg
	if c.Deadline.IsZero() || c.Policy.Lead <= 0 {
		return
	}
	lead, why := a.lead()
	a.leadUsed.Store(int64(lead))
	for end := c.Deadline; ; {
		if pause.Until(a.ctx, end.Add(-lead)) != nil {
			return
		}
		now := a.askDeadline(end)
		if !now.IsZero() && now.Sub(end) <= deadlineBlur {
			if !c.Builtin {
				a.warn(fmt.Sprintf("the job ends at %s%s", end.Format(time.TimeOnly), why))
			}
			return
		}
		a.movedDeadline.Store(&now)
		if now.IsZero() {
			c.Log.Warn("the job has no time limit any more")
			return
		}
		c.Log.Warn("the job's end was put off", "from", end, "to", now)
		end = now
	}
}

// askDeadline asks again when the job ends that was to end at end.
func (a *Agent) askDeadline(end time.Time) time.Time {
	if a.cfg.FindDeadline == nil {
		return end
	}
	ctx, cancel := context.WithTimeout(a.ctx, rendezvous.FindingLimit)
	defer cancel()
	now, err := a.cfg.FindDeadline(ctx)
	if err != nil {
		a.cfg.Log.Warn("whether the job's end was put off is not known", "error", err)
		return end
	}
	return now
}

// Deadline is when the job ends, as far as is known; zero: never, or nobody knows.
func (a *Agent) Deadline() time.Time {
	if moved := a.movedDeadline.Load(); moved != nil {
		return *moved
	}
	return a.cfg.Deadline
}

// awaitStopFile is agent 0's, for the length of a round: it warns when somebody has made the job's stop file, or this round's.
func (r *round) awaitStopFile(ctx context.Context) {
	// A stop file belongs to its attempt, so that the next one does not find it; the batch script knows the job's first attempt alone.
	paths := slices.Compact([]string{r.agent.cfg.stopFile(), r.cfg.stopFile()})
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	if path, found := awaitOne(ctx, r.agent.warned, paths, exists); found {
		r.agent.warn("there is a stop file, " + path)
	}
}

// awaitOne waits until one of paths exists, as far as they are given; false where ctx or over ends before. It does not wait for a look that the
// file system does not answer.
func awaitOne(ctx context.Context, over <-chan struct{}, paths []string, exists func(string) bool) (path string, found bool) {
	look := func() <-chan string {
		seen := make(chan string, 1)
		go func() {
			at := slices.IndexFunc(paths, func(path string) bool { return path != "" && exists(path) })
			if at < 0 {
				seen <- ""
				return
			}
			seen <- paths[at]
		}()
		return seen
	}
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	for seen := look(); ; {
		select {
		case path := <-seen:
			if path != "" {
				return path, true
			}
			seen = nil
		case <-tick.C:
			if seen == nil {
				seen = look()
			}
		case <-over:
			return "", false
		case <-ctx.Done():
			return "", false
		}
	}
}

// warn passes a warning on to this node's workers: by the stop file, and by a signal to those that have a handler for it.
func (s *Supervisor) warn() {
	s.warnedAt = time.Now()
	w := s.round.agent.warning
	stopFile := s.cfg.stopFile()
	if stopFile != "" {
		s.writes.Go(func() {
			if err := touch(stopFile); err != nil {
				s.cfg.Log.Warn("the workers' stop file cannot be made", "error", err)
			}
		})
	}
	s.forward()
	if s.cfg.Index != 0 {
		return // one of the agents says it
	}
	about := []any{"why", w.Why, "told", w.Host}
	if stopFile != "" {
		about = append(about, "stop_file", stopFile)
	}
	s.cfg.Log.Warn("the workers are asked to save and exit with 75", about...)
}

// forward sends the warning's signal to every worker that can bear it and has not got it yet: any other would be killed by
// it. Who has just begun may get a handler later.
func (s *Supervisor) forward() {
	s.forwardDue = nil
	if s.stop.stage > asked {
		return
	}
	waiting := false
	for _, w := range s.workers {
		if w.warned || !w.ended.IsZero() {
			continue
		}
		warned, err := w.process.Warn(s.cfg.WarnSignal)
		if w.warned = warned > 0; err != nil {
			s.cfg.Log.Warn("a worker cannot be warned by a signal", "rank", w.numbers.Rank, "error", err)
		}
		waiting = waiting || !w.warned
	}
	if waiting {
		s.forwardPause = lessOften(s.forwardPause)
		s.forwardDue = time.After(s.forwardPause)
	}
}

// lessOften is the next pause between looks for a handler: each is one at all processes of the node, and many programs never have one.
func lessOften(pause time.Duration) time.Duration {
	return min(max(2*pause, warnAgain), warnSeldom)
}

// touch makes an empty file, unless it is there.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", filepath.Base(path), err)
	}
	return f.Close()
}

// lead is how long before its end the job is warned; why, at the end of a sentence, where that is not what the policy says: attempts before this
// one have needed longer to end.
func (a *Agent) lead() (lead time.Duration, why string) {
	c := a.cfg
	if c.RunDir == nil || c.Builtin {
		return c.Policy.Lead, ""
	}
	history, err := CallFS("read the ledger", c.RunDir.Ledger)
	if err != nil {
		c.Log.Warn("how long attempts before this one took to save is not known", "error", err)
		return c.Policy.Lead, ""
	}
	lead, longest := c.Policy.LeadFor(c.Attempt, history, time.Until(c.Deadline))
	if longest > 0 {
		why = fmt.Sprintf("; warned %v before it, as an earlier attempt took %v from its warning to its end", lead.Round(time.Second), longest.Round(time.Second))
	}
	return lead, why
}

// leadS is lead in seconds, once agent 0 goes by it; 0: it does not.
func (a *Agent) leadS() float64 { return time.Duration(a.leadUsed.Load()).Seconds() }

// sinceWarning is how many seconds ago this agent's workers were warned, to the millisecond; 0: they were not.
func (s *Supervisor) sinceWarning() float64 {
	if s.warnedAt.IsZero() {
		return 0
	}
	return max(time.Millisecond, time.Since(s.warnedAt).Round(time.Millisecond)).Seconds()
}
