package supervise

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/watch"
)

// Each agent reports the contents of its workers' heartbeat files to agent 0 when they have changed. Agent 0 computes the
// differences over a window, writes them to the run directory (steps.jsonl), and reports when other ranks than before are clearly
// slower than the rest.

// rankBeat is the content of a heartbeat file that has its worker's step.
type rankBeat struct {
	Rank int        `json:"rank"`
	At   int64      `json:"at"` // when it was changed, in nanoseconds since 1970 by the node's clock
	Beat watch.Beat `json:"beat"`
}

// watchesSteps reports whether there are heartbeat files, and a folder for the step times.
func (c Config) watchesSteps() bool { return c.HangAfter > 0 && c.RunDir != nil }

// stepWatch is what an agent has reported of its workers' steps, and what agent 0 knows of all. nil: step times are not recorded.
type stepWatch struct {
	ranks []int            // of the agent's workers, in their order
	said  map[int]rankBeat // by rank

	// At agent 0.
	steps   *watch.Steps // nil at other agents
	hosts   []string     // as last written to the file
	ended   time.Time
	window  time.Duration
	written chan stepsWritten // nil: no write is running
	named   string            // the stragglers, as last reported
	changes int               // how often they were reported
	warned  bool              // has logged that the times cannot be written
}

type stepsWritten struct {
	window time.Duration
	err    error
}

func newStepWatch(s *Supervisor) *stepWatch {
	if !s.cfg.watchesSteps() {
		return nil
	}
	w := &stepWatch{said: make(map[int]rankBeat), ended: time.Now()}
	if s.cfg.Index == 0 {
		w.steps = watch.NewSteps(s.round.layout.World)
	}
	for _, one := range s.workers {
		w.ranks = append(w.ranks, one.numbers.Rank)
	}
	return w
}

// fresh returns those contents of the workers' files that were not reported to agent 0 yet.
func (w *stepWatch) fresh(beats []heartbeat) (list []rankBeat) {
	if w == nil {
		return nil
	}
	for i, b := range beats {
		if one := (rankBeat{w.ranks[i], b.at.UnixNano(), b.beat}); b.known && one != w.said[one.Rank] {
			list = append(list, one)
		}
	}
	return list
}

// reported records that list was reported to agent 0.
func (w *stepWatch) reported(list []rankBeat) {
	for _, one := range list {
		w.said[one.Rank] = one
	}
}

// receive records another agent's report, at agent 0.
func (w *stepWatch) receive(host string, list []rankBeat) {
	if w == nil {
		return
	}
	for _, r := range list {
		w.steps.Note(r.Rank, host, time.Unix(0, r.At), r.Beat)
	}
}

// endStepWindow ends the window at agent 0, if its time is over and the previous line is written.
func (s *Supervisor) endStepWindow(now time.Time) {
	w := s.steps
	if w == nil || w.steps == nil {
		return
	}
	if w.written != nil {
		select {
		case done := <-w.written:
			w.written = nil
			if s.stepsWritten(done); s.steps == nil {
				return
			}
		default:
			return
		}
	}
	length := now.Sub(w.ended)
	if length < max(w.window, time.Second) {
		return
	}
	seen, ok := w.steps.Window()
	if !ok {
		return
	}
	w.ended = now
	line := stepLine(seen)
	line.Time, line.Attempt, line.WindowS = now.UTC().Round(time.Millisecond), s.cfg.Attempt, math.Round(length.Seconds()*1000)/1000
	if slices.Equal(line.Hosts, w.hosts) {
		line.Hosts = nil
	} else {
		w.hosts = line.Hosts
	}
	event := s.noteStragglers(line)
	dir, age, written := s.cfg.RunDir, now.Sub(s.round.began), make(chan stepsWritten, 1)
	w.written = written
	s.writes.Go(func() {
		window, err := dir.AppendStepTimes(line, age)
		if err == nil && event != nil {
			err = dir.Append(*event)
		}
		written <- stepsWritten{window, err}
	})
}

func (s *Supervisor) stepsWritten(done stepsWritten) {
	w := s.steps
	if done.err == nil {
		w.window = done.window
		return
	}
	w.hosts = nil // the line may not have been written
	if errors.Is(done.err, rundir.ErrSuperseded) {
		s.steps = nil
		return
	}
	if w.window = time.Minute; !w.warned {
		w.warned = true
		s.cfg.Log.Warn("could not write the ranks' step times", "error", done.err)
	}
}

// stepLine is a window in the run directory's format.
func stepLine(seen watch.StepWindow) rundir.StepTimes {
	parts := [watch.Parts + 1]string{watch.Compute: rundir.PartCompute, watch.Input: rundir.PartInput, watch.Comm: rundir.PartComm}
	line := rundir.StepTimes{
		Step: seen.Step, Hosts: seen.Hosts, StepS: seen.Whole,
		ComputeS: seen.Part[watch.Compute], InputS: seen.Part[watch.Input], CommS: seen.Part[watch.Comm],
	}
	for _, slow := range seen.Slow {
		if len(line.Stragglers) == maxStragglers {
			break
		}
		line.Stragglers = append(line.Stragglers, rundir.Straggler{
			Rank: slow.Rank, Host: slow.Host, Times: math.Round(slow.Times*100) / 100, Part: parts[slow.Part],
		})
	}
	return line
}

const (
	maxStragglers = 64 // the most that a line names
	fewStragglers = 4  // the most that a sentence names
	maxChanges    = 50 // of the stragglers that the ledger records in a round
)

// noteStragglers logs a change of the ranks that are slower than the rest, and returns an event for it, or nil if nothing has changed.
func (s *Supervisor) noteStragglers(line rundir.StepTimes) *rundir.Event {
	var who, sentences []string
	for _, one := range line.Stragglers {
		who = append(who, fmt.Sprint(one.Rank, one.Host))
		sentences = append(sentences, one.String())
	}
	w := s.steps
	if named := strings.Join(who, "\n"); named == w.named || w.changes >= maxChanges {
		return nil
	} else {
		w.named = named
	}
	w.changes++
	e := &rundir.Event{
		Time: line.Time, Event: rundir.EventStraggler, Attempt: line.Attempt, Step: line.Step,
		Detail: "no rank is slower than the others any longer",
	}
	if len(sentences) > 0 {
		e.Node, e.Detail = line.Stragglers[0].Host, text.Few(sentences, fewStragglers)
		s.cfg.Log.Warn(e.Detail)
	} else {
		s.cfg.Log.Info(e.Detail)
	}
	return e
}
