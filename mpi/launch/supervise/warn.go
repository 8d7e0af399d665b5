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
	keyWarn   = "warn"   // the warning, set by the first agent that warns
	keySignal = "signal" // set by the first agent other than agent 0 that gets a signal; agent 0 deletes it for the next one
	keyDrain  = "drain"  // agent 0's warning of nodes that Slurm drains
)

const (
	stopPoll   = time.Second      // between looks for the stop file, at agent 0
	warnAgain  = time.Second      // between looks for a handler of the warning's signal, at first
	warnSeldom = 15 * time.Second // the same, after a while
	warnRarely = 5 * time.Minute  // the same if Slurm drains a node: the job may go on for days

	oneSignal = 5 * time.Second // for one signal to reach the agents of all nodes
)

// warning is a request to save and end. The run goes on until its workers end, or the job is ended.
type warning struct {
	Host  string   `json:"host"` // the host of the agent that was told
	Why   string   `json:"why"`
	Nodes []string `json:"nodes,omitempty"` // nodes that Slurm drains, sorted; none: the warning has another reason
}

// listenForWarnings begins to receive warnings, from the caller and from other agents. Agent 0 decides when a signal counts.
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

// receiveSignals runs at agent 0. It receives the signals that the other agents got.
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

// passSignalOn runs at all agents but agent 0. It passes the signals that this agent gets on to agent 0.
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

// warn warns all agents, this one included. The first warning counts.
func (a *Agent) warn(why string) { a.put(keyWarn, warning{Host: a.cfg.Host, Why: why}) }

// put publishes a warning under a key, unless an agent has set that before.
func (a *Agent) put(key string, w warning) {
	text, err := json.Marshal(w)
	if err == nil {
		_, err = a.rdzv.Store().CompareSet(a.ctx, key, nil, text)
	}
	if err != nil && a.ctx.Err() == nil {
		a.cfg.Log.Warn("could not warn the other agents", "why", w.Why, "error", err)
	}
}

// awaitStopFile runs at agent 0 during a round. It warns when the job's stop file, or this round's, exists, and passes on
// signals that the batch script gets.
func (r *round) awaitStopFile(ctx context.Context) {
	// The files belong to their attempts, so that the next attempt does not find them. The batch script only knows the job's first attempt.
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
				r.agent.cfg.Log.Warn("could not remove the file of a signal; the batch script's next signal will not be noticed",
					"error", err)
				signalled = nil
			}
		case r.agent.leaves.Load(): // the agents have made the stop file
			stop = nil
		default:
			r.agent.warn("found the stop file " + path)
			return
		}
	}
}

// handSignalOn takes a signal of the batch script, and removes its file, so that the next signal makes it again. Once ctx ends, it does
// not wait for a file system that does not answer.
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

// awaitOne waits until one of paths exists; "" is skipped. It returns false if ctx or over ends before. It does not wait for a file
// system that does not answer.
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
		return // agent 0 logs it for all
	}
	about := []any{"why", w.Why, "told", w.Host}
	if stopFile != "" {
		about = append(about, "stop_file", stopFile)
	}
	s.cfg.Log.Warn("the workers are asked to save and exit with 75", about...)
}

// forward sends the newest warning's signal to every worker that has a handler for it and has not got it yet. Any other worker
// would die of it. A worker that has just begun may install a handler later.
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
			s.cfg.Log.Warn("could not send a worker the signal of the warning", "rank", w.numbers.Rank, "error", err)
		}
		if processes > 0 {
			w.warned = s.warnings
		} else {
			waiting = true
		}
	}
	if waiting {
		most := warnSeldom
		if s.warnedAt.IsZero() { // only of a drain
			most = warnRarely
		}
		s.forwardPause = lessOften(s.forwardPause, most)
		s.forwardDue = time.After(s.forwardPause)
	}
}

// lessOften is the next pause between looks for a handler: each look reads all processes of the node, and many programs never get one.
func lessOften(pause, most time.Duration) time.Duration {
	return min(max(2*pause, warnAgain), most)
}

// touch makes an empty file, unless it exists.
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

// sinceWarning is how many seconds ago this agent's workers were warned, to the millisecond; 0: not warned.
func (s *Supervisor) sinceWarning() float64 {
	if s.warnedAt.IsZero() {
		return 0
	}
	return max(time.Millisecond, time.Since(s.warnedAt).Round(time.Millisecond)).Seconds()
}
