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

const (
	keyWarn   = "warn"   // where whoever comes first puts the warning
	keySignal = "signal" // where the first agent, other than agent 0, that got a signal says so; agent 0 takes it away for the next one
	keyDrain  = "drain"  // where agent 0 puts a warning of nodes that Slurm drains
)

const (
	stopPoll   = time.Second      // between looks for the stop file, at agent 0
	warnAgain  = time.Second      // between looks for a handler of the warning's signal, at first
	warnSeldom = 15 * time.Second // the same in the end
	warnRarely = 5 * time.Minute  // the same where Slurm drains a node: the job may go on for days

	oneSignal = 5 * time.Second // in which one signal has reached the agents of all nodes
)

// warning is why the run is asked to save and end: it goes on until its workers do, or the job is ended.
type warning struct {
	Host  string   `json:"host"` // whose agent was told
	Why   string   `json:"why"`
	Nodes []string `json:"nodes,omitempty"` // that Slurm drains, sorted; none: it is another warning
}

// listenForWarnings begins to hear of warnings, from the caller and from other agents. Agent 0 decides when a signal counts.
func (a *Agent) listenForWarnings() {
	a.tasks.Go(func() {
		if w, err := rendezvous.GetJSON[warning](a.ctx, a.rdzv.Store(), keyWarn); err == nil {
			a.warning = w
			close(a.warned)
		}
	})
	if a.cfg.FindDrain != nil {
		a.tasks.Go(func() {
			if w, err := rendezvous.GetJSON[warning](a.ctx, a.rdzv.Store(), keyDrain); err == nil {
				a.drain = w
				close(a.drained)
			}
		})
	}
	if a.cfg.Index != 0 {
		a.tasks.Go(a.passSignalOn)
		return
	}
	if a.cfg.FindDrain != nil {
		a.tasks.Go(a.watchDrain)
	}
	a.tasks.Go(a.receiveSignals)
	a.tasks.Go(a.watchEnd)
}

// receiveSignals is agent 0's: it takes the signals that the other agents got.
func (a *Agent) receiveSignals() {
	for {
		w, err := rendezvous.GetJSON[warning](a.ctx, a.rdzv.Store(), keySignal)
		if err != nil {
			return
		}
		a.takeSignal(w)
		if pause.For(a.ctx, oneSignal) != nil {
			return
		}
		if _, err := a.rdzv.Store().Delete(a.ctx, keySignal); err != nil {
			return
		}
	}
}

// passSignalOn is of all agents but agent 0: it gets the signals that this agent got.
func (a *Agent) passSignalOn() {
	for {
		select {
		case <-a.cfg.Warn:
			a.put(keySignal, warning{Host: a.cfg.Host, Why: signalCame})
		case <-a.ctx.Done():
			return
		}
	}
}

// warn tells all agents, this one included; the first warning counts.
func (a *Agent) warn(why string) { a.put(keyWarn, warning{Host: a.cfg.Host, Why: why}) }

// put tells other agents, unless one has put something there before.
func (a *Agent) put(key string, w warning) {
	text, err := json.Marshal(w)
	if err == nil {
		_, err = a.rdzv.Store().CompareSet(a.ctx, key, nil, text)
	}
	if err != nil && a.ctx.Err() == nil {
		a.cfg.Log.Warn("the other agents cannot be warned", "why", w.Why, "error", err)
	}
}

// awaitStopFile is agent 0's, for the length of a round: it warns when somebody has made the job's stop file, or this round's, and hands
// on a signal that the batch script got.
func (r *round) awaitStopFile(ctx context.Context) {
	// Both files belong to their attempt, so that the next one does not find them; the batch script knows the job's first attempt alone.
	stop, signalled := slices.Compact([]string{r.agent.cfg.stopFile(), r.cfg.stopFile()}), []string{r.agent.cfg.signalFile()}
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	for len(stop)+len(signalled) > 0 {
		path, found := awaitOne(ctx, r.agent.warned, slices.Concat(stop, signalled), exists)
		switch {
		case !found:
			return
		case slices.Contains(signalled, path):
			if err := r.agent.handSignalOn(ctx, func() error { return os.Remove(path) }); err != nil {
				r.agent.cfg.Log.Warn("another signal that the batch script gets will not be heard", "error", err)
				signalled = nil
			}
		case r.agent.leaves.Load(): // the agents have made it
			stop = nil
		default:
			r.agent.warn("there is a stop file, " + path)
			return
		}
	}
}

// handSignalOn takes a signal of the batch script's, and removes its file, so that the next signal makes it again. It does not wait for a
// file system that does not answer once ctx ends.
func (a *Agent) handSignalOn(ctx context.Context, remove func() error) error {
	a.takeSignal(warning{Host: a.cfg.Host, Why: signalCame})
	removed := make(chan error, 1)
	go func() { removed <- DoFS("remove the file of a signal", remove) }()
	select {
	case err := <-removed:
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	case <-ctx.Done():
		return nil
	}
}

// awaitOne waits until one of paths exists, as far as they are given; false where ctx or over ends before. It does not wait for a look
// that the file system does not answer.
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
func (s *Supervisor) warn(w warning) {
	s.warnings++
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

// forward sends the newest warning's signal to every worker that can bear it and has not got it yet: any other would be killed by
// it. Who has just begun may get a handler later.
func (s *Supervisor) forward() {
	s.forwardDue = nil
	if s.stop.stage > asked {
		return
	}
	waiting := false
	for _, w := range s.workers {
		if w.warned == s.warnings || !w.ended.IsZero() {
			continue
		}
		processes, err := w.process.Warn(s.cfg.WarnSignal)
		if err != nil {
			s.cfg.Log.Warn("a worker cannot be warned by a signal", "rank", w.numbers.Rank, "error", err)
		}
		if processes > 0 {
			w.warned = s.warnings
		} else {
			waiting = true
		}
	}
	if waiting {
		most := warnSeldom
		if s.warnedAt.IsZero() { // of a drain alone
			most = warnRarely
		}
		s.forwardPause = lessOften(s.forwardPause, most)
		s.forwardDue = time.After(s.forwardPause)
	}
}

// lessOften is the next pause between looks for a handler: each is one at all processes of the node, and many programs never have one.
func lessOften(pause, most time.Duration) time.Duration {
	return min(max(2*pause, warnAgain), most)
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

// sinceWarning is how many seconds ago this agent's workers were warned, to the millisecond; 0: they were not.
func (s *Supervisor) sinceWarning() float64 {
	if s.warnedAt.IsZero() {
		return 0
	}
	return max(time.Millisecond, time.Since(s.warnedAt).Round(time.Millisecond)).Seconds()
}
