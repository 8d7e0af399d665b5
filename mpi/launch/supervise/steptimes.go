package supervise

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch/watch"
)

// Each agent reads its workers' heartbeat files where it looks for hangs, and tells agent 0 what is new in them. Agent 0 takes the
// differences
// over a window, writes them to the run directory (steps.jsonl), and says when other ranks than before are clearly slower than the rest.

// agentBeats is what an agent says of its workers.
type agentBeats struct {
	Host  string     `json:"host"`
	Ranks []rankBeat `json:"ranks"`
}

// rankBeat is a heartbeat file that says how far its worker is.
type rankBeat struct {
	Rank int        `json:"rank"`
	At   int64      `json:"at"` // when it was changed, in nanoseconds since 1970 by the node's clock
	Beat watch.Beat `json:"beat"`
}

// watchesSteps reports whether there are heartbeat files, and a folder for what they say.
func (c Config) watchesSteps() bool { return c.HangAfter > 0 && c.RunDir != nil }

// stepWatch is what an agent knows of its workers' steps, and agent 0 of all.
type stepWatch struct {
	paths []string // heartbeat files
	ranks []int    // of the same workers

	seen    []rankBeat
	answers chan []rankBeat // nil: nothing is being read

	// At agent 0.
	steps   *watch.Steps
	hosts   []string // as the file has them
	ended   time.Time
	window  time.Duration
	written chan stepsWritten // nil: nothing is being written
	named   string            // the stragglers, as was told
	changes int               // how often that was told
	warned  bool              // that the times cannot be written
}

type stepsWritten struct {
	window time.Duration
	err    error
}

func newStepWatch(s *Supervisor) *stepWatch {
	if !s.cfg.watchesSteps() {
		return nil
	}
	w := &stepWatch{steps: watch.NewSteps(s.round.layout.World), ended: time.Now()}
	for _, one := range s.workers {
		w.paths, w.ranks = append(w.paths, one.files.heartbeat), append(w.ranks, one.numbers.Rank)
	}
	return w
}

// observeSteps looks at the heartbeat files, and at agent 0 ends a window that has been long enough.
func (s *Supervisor) observeSteps() {
	if s.steps == nil {
		return
	}
	if fresh := s.steps.look(); len(fresh) > 0 {
		b := agentBeats{s.cfg.Host, fresh}
		if s.cfg.Index == 0 {
			s.receiveBeats(b)
		} else {
			select {
			case s.control.beatsOut <- b:
			default: // agent 0 is busy; the counters go on, so that nothing is lost
			}
		}
	}
	if s.cfg.Index == 0 {
		s.endStepWindow(time.Now())
	}
}

// look returns what is new in the files. It leaves a goroutine behind for as long as the file system does not answer, one at most.
func (w *stepWatch) look() (fresh []rankBeat) {
	if w.answers == nil {
		answers := make(chan []rankBeat, 1)
		w.answers = answers
		go func() { answers <- readBeats(w.paths, w.ranks) }()
	}
	beats, came := pause.Await(w.answers, heartbeatWait)
	if !came {
		return nil
	}
	w.answers = nil
	for _, b := range beats {
		if !slices.Contains(w.seen, b) {
			fresh = append(fresh, b)
		}
	}
	w.seen = beats
	return fresh
}

// readBeats reads the files that have a step.
func readBeats(paths []string, ranks []int) (beats []rankBeat) {
	for i, path := range paths {
		if b, ok := readBeat(path); ok {
			b.Rank = ranks[i]
			beats = append(beats, b)
		}
	}
	return beats
}

func readBeat(path string) (rankBeat, bool) {
	f, info, err := vfs.OpenRegularNow(path)
	if err != nil {
		return rankBeat{}, false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, watch.MaxBeat))
	b, ok := watch.ParseBeat(text)
	return rankBeat{At: info.ModTime().UnixNano(), Beat: b}, ok && err == nil
}

// receiveBeats is agent 0's.
func (s *Supervisor) receiveBeats(b agentBeats) {
	if s.steps == nil {
		return
	}
	for _, r := range b.Ranks {
		s.steps.steps.Note(r.Rank, b.Host, time.Unix(0, r.At), r.Beat)
	}
}

// endStepWindow ends the window where its time is over and the line before is written.
func (s *Supervisor) endStepWindow(now time.Time) {
	w := s.steps
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
	w.hosts = nil // the line may not be there
	if errors.Is(done.err, rundir.ErrSuperseded) {
		s.steps = nil
		return
	}
	if w.window = time.Minute; !w.warned {
		w.warned = true
		s.cfg.Log.Warn("the ranks' step times are not written", "error", done.err)
	}
}

// stepLine is a window as the run directory has it.
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
	maxStragglers = 64 // that a line names
	fewStragglers = 4  // that a sentence names
	maxChanges    = 50 // of the stragglers, that the ledger tells of in a round
)

// noteStragglers tells when others than before are slower than the rest, or none is any longer; nil: it is as it was.
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
	e := &rundir.Event{Time: line.Time, Event: rundir.EventStraggler, Attempt: line.Attempt, Step: line.Step, Detail: "no rank is slower than the others any longer"}
	if len(sentences) > 0 {
		e.Node, e.Detail = line.Stragglers[0].Host, text.Few(sentences, fewStragglers)
		s.cfg.Log.Warn(e.Detail)
	} else {
		s.cfg.Log.Info(e.Detail)
	}
	return e
}
