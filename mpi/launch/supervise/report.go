package supervise

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/launch/output"
)

const (
	maxRanks  = 256 // that a verdict tells of
	tailLines = 600 // of each stream of a worker that ended badly; blame.Words bounds them further
)

// endsReport is an agent's account of its workers when they are gone.
type endsReport struct {
	Host   string        `json:"host"`
	Deaths []blame.Death `json:"deaths,omitempty"` // of those that have ended, well or not; Ended is before the report, and negative
	Stuck  int           `json:"stuck,omitempty"`  // processes that even KILL did not end
	Stacks []stacks      `json:"stacks,omitempty"` // of workers that hung
}

// report accounts for this agent's workers, and those of their processes that are left.
func (s *Supervisor) report(left int) endsReport {
	r := endsReport{Host: s.cfg.Host, Stuck: left, Stacks: s.stacks}
	memory := s.memory()
	for _, w := range s.workers {
		switch {
		case w.ended.IsZero():
			r.Stuck++
		case w.exit == 0 && w.signal == 0: // its words are of no use
			r.Deaths = append(r.Deaths, blame.Death{
				Rank: w.numbers.Rank, LocalRank: w.numbers.LocalRank, Host: s.cfg.Host, Ended: -time.Since(w.ended), Stopping: w.followed,
			})
		default:
			r.Deaths = append(r.Deaths, s.death(w, memory))
		}
	}
	return r
}

// AllEnded tells whether no process of agent 0's own workers is left, even after KILL.
func (s *Supervisor) AllEnded() bool { return s.reports[0].Stuck == 0 }

// death is what is known on its own node of the end of a worker that did not end well.
func (s *Supervisor) death(w *worker, memory proc.OutOfMemory) blame.Death {
	d := blame.Death{
		Rank: w.numbers.Rank, LocalRank: w.numbers.LocalRank, Host: s.cfg.Host,
		Exit: w.exit, Signal: int(w.signal), Ended: -time.Since(w.ended), Stopping: w.followed, LogPath: w.lastLog(),
		Tail: w.words,
	}
	if d.Tail == nil {
		d.Tail = w.tail()
	}
	if w.signal == syscall.SIGKILL && !w.followed && memory.Likely() {
		d.OOM = memory.String()
	}
	if w.files.errorFile != "" {
		var err error
		if d.ErrorFile, err = blame.ReadErrorFile(w.files.errorFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Log.Warn("a worker's error file cannot be read", "rank", w.numbers.Rank, "error", err)
		}
	}
	if d.ErrorFile != nil { // whose words are not to be in a report with values that may be secret
		secrets := redact.ValuesOf(s.cfg.Env)
		d.ErrorFile.Message, d.ErrorFile.Stack = secrets.In(d.ErrorFile.Message), secrets.In(d.ErrorFile.Stack)
	}
	if blame.LacksModule(d) {
		d.Python = s.cfg.python()
	}
	return d
}

// python is the Python that the workers' command names or, where that is a program of another kind, as a shell is, the python3 of its PATH.
// "": none is found, or it is one in a container's image.
func (c Config) python() string {
	if c.Container != nil {
		return ""
	}
	names := []string{"python3", "python"}
	if strings.HasPrefix(filepath.Base(c.Command[0]), "python") {
		names = []string{c.Command[0]}
	}
	for _, name := range names {
		if path, err := c.lookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// tail returns the worker's last lines so far, for reports, without the values of its variables that may be secret. It blanks the values
// before a line is cut, because half a value would not be found.
func (w *worker) tail() []string {
	secrets := redact.ValuesOf(w.cmd.Env)
	return blame.Words(secrets.InLines(w.errs.Tail(tailLines)), secrets.InLines(w.out.Tail(tailLines)))
}

// lastLog returns the file that holds the worker's last words: that of standard error or, if standard error is empty, that of standard
// output. It returns "" if both are empty, or if no file holds them.
func (w *worker) lastLog() string {
	for _, of := range []struct {
		stream *output.Stream
		path   string
	}{{w.errs, w.files.Err}, {w.out, w.files.Out}} {
		if of.stream != nil && strings.TrimSpace(strings.Join(of.stream.Tail(tailLines), "")) != "" {
			return of.path
		}
	}
	return ""
}

// memory is what has happened to this node's memory since the round began.
func (s *Supervisor) memory() proc.OutOfMemory {
	for _, w := range s.workers {
		if w.signal == syscall.SIGKILL {
			now, err := proc.ReadMemory(os.DirFS("/"))
			if err != nil {
				s.cfg.Log.Warn("whether memory ran out is not known", "error", err)
			}
			return now.Since(s.before)
		}
	}
	return proc.OutOfMemory{}
}

// account completes a round's verdict with how all workers of all agents ended: who failed first in truth, who
// followed, and whether they saved. The deaths are all ends that are known; chosen is the first bad one, -1: none is.
func (s *Supervisor) account(v rundir.Verdict) (_ rundir.Verdict, deaths []blame.Death, chosen int) {
	for _, r := range s.reports {
		deaths = append(deaths, r.Deaths...)
	}
	if s.hung != nil && v.Cause == causeHang {
		v = s.namedByStacks(v)
	}
	all := countEnds(deaths)
	chosen = -1
	switch v.Cause {
	case causeCrash:
		chosen = blame.Choose(deaths)
	case causeHang:
		chosen = slices.IndexFunc(deaths, func(d blame.Death) bool { return d.Rank == v.FirstRank })
	case causeStopped:
		// one more that saved makes no difference to what follows
		if chosen = blame.ChooseFailed(deaths); chosen < 0 && len(all.killed) > 0 {
			v.Saved = false
			v.Message += "; " + wereKilled(all.killed)
		}
	case causeCancelled, causeTimeout:
		v, chosen = s.accountInterrupted(v, deaths, all)
	}
	if chosen >= 0 && deaths[chosen].Rank != v.FirstRank && v.Cause != causeCancelled && v.Cause != causeTimeout {
		v = s.cfg.blamed(v, deaths[chosen])
	}
	followed := blame.Followed(deaths, chosen)
	v.Ranks = rankEnds(deaths, followed, chosen)
	if v.OOM = chosen >= 0 && deaths[chosen].OutOfMemory(); v.OOM && v.Cause == causeCrash {
		v.Cause = causeOOM
	}
	if chosen >= 0 {
		v = s.round.explained(v, deaths[chosen])
	}
	return forbidRestart(v, deaths), deaths, chosen
}

// explained is v with what the last words of the rank that it names come to. A fault of the rank's node is no failure of the rank's: the
// cause is the node then, unless a signal to stop ended the rank, of which the agents know too little.
func (r *round) explained(v rundir.Verdict, d blame.Death) rundir.Verdict {
	found := blame.Finding{}
	if v.Cause != causeHang { // of which it was killed
		found = blame.Find(d)
	}
	v.Error, v.Class, v.Advice = found.Error, string(found.Class), cmp.Or(r.hint(d), found.Advice)
	if v.Cause != causeCrash && v.Cause != causeOOM || syscall.Signal(d.Signal) == syscall.SIGTERM {
		return v
	}
	v.Final, v.Trace = found.Final, found.Trace
	if found.Node {
		v.Cause, v.Nodes = causeNode, append(v.Nodes, d.Host)
	}
	return v
}

// accountInterrupted completes the verdict of a round that was told to end: its workers have saved if one says so (75), and none has
// failed in that or was killed at it. Those that just leave have nothing to save.
func (s *Supervisor) accountInterrupted(v rundir.Verdict, deaths []blame.Death, all endCounts) (_ rundir.Verdict, failed int) {
	world := s.round.layout.World // a lost agent's workers have told nothing
	failed = -1
	if all.saved > 0 {
		failed = blame.ChooseFailed(deaths)
	}
	switch {
	case failed >= 0:
		d := deaths[failed]
		v.Message += fmt.Sprintf("; rank %d on %s %s, so the run has not saved", d.Rank, d.Host, d.How())
	case all.saved > 0 && len(all.killed) > 0:
		v.Message += "; " + wereKilled(all.killed) + ", so the run has not saved"
	case all.saved > 0:
		v.Saved, v.Exit, v.Requeue = true, exit.Requeue, true
	case all.clean == world:
		v.Saved = true
		if v.Signal == int(syscall.SIGTERM) { // 0 means finished, after a warning too; Ctrl-C is a person's word
			v.Cause, v.Exit, v.Signal, v.Host = causeDone, 0, 0, ""
			v.Message = fmt.Sprintf("%s, after they had been told to stop", s.cfg.doneOutcome(world).Message)
		}
	}
	return v, failed
}

// endCounts counts ends by kind.
type endCounts struct {
	clean, saved int
	killed       []int // ranks that their agent had to kill
}

func countEnds(deaths []blame.Death) (e endCounts) {
	for _, d := range deaths {
		switch {
		case d.Signal == 0 && d.Exit == 0:
			e.clean++
		case d.Signal == 0 && d.Exit == exit.Requeue:
			e.saved++
		case d.Stopping && d.Signal == int(syscall.SIGKILL):
			e.killed = append(e.killed, d.Rank)
		}
	}
	return e
}

func wereKilled(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d was killed before it had ended", ranks[0])
	}
	return fmt.Sprintf("ranks %s were killed before they had ended", blame.Ranges(ranks))
}

// forbidRestart has the run end for good where a rank asks for that, whatever the others say.
func forbidRestart(v rundir.Verdict, deaths []blame.Death) rundir.Verdict {
	at := slices.IndexFunc(deaths, func(d blame.Death) bool { return d.Signal == 0 && d.Exit == exit.Never })
	if at < 0 || v.Exit == exit.Never {
		return v
	}
	v.Exit, v.Requeue = exit.Never, false
	v.Message += fmt.Sprintf("; rank %d on %s exited with code %d, which forbids another attempt", deaths[at].Rank,
		deaths[at].Host, exit.Never)
	return v
}

// rankEnds lists the bad ends, the chosen one first.
func rankEnds(deaths []blame.Death, followed []bool, chosen int) (list []rundir.RankEnd) {
	add := func(i int) {
		d := deaths[i]
		if bad := d.Exit != 0 || d.Signal != 0; bad && len(list) < maxRanks {
			list = append(list, rundir.RankEnd{Rank: d.Rank, Host: d.Host, Exit: d.Exit, Signal: d.Signal, Followed: followed[i]})
		}
	}
	if chosen >= 0 {
		add(chosen)
	}
	for i := range deaths {
		if i != chosen {
			add(i)
		}
	}
	return list
}

// blamed is v with another rank's end as its cause.
func (c Config) blamed(v rundir.Verdict, d blame.Death) rundir.Verdict {
	c.Host = d.Host
	if other, bad := c.endOutcome(d.Rank, d.Exit, syscall.Signal(d.Signal), d.LogPath); bad {
		other.Time = v.Time
		return other
	}
	return v
}

// maxReport bounds what an agent tells of its workers' ends: a value of the store has no more than store.MaxValue, and agent 0 holds
// the reports of all agents.
const maxReport = 4 << 20

// fewDeaths is how many of many deaths keep their words where all of them are too much.
const fewDeaths = 8

// encode is the report in JSON, in no more than limit bytes: what is too much loses the words of its deaths, of the later ones first,
// but never a death.
func (r endsReport) encode(limit int) ([]byte, error) {
	var text []byte
	var err error
	for _, keep := range []int{len(r.Deaths), fewDeaths, 1, 0} {
		if text, err = json.Marshal(r); err != nil || len(text) <= limit {
			return text, err
		}
		r.Stacks = nil
		r.Deaths = append(r.Deaths[:0:0], r.Deaths...)
		for i := min(keep, len(r.Deaths)); i < len(r.Deaths); i++ {
			r.Deaths[i].Tail, r.Deaths[i].ErrorFile = nil, nil
		}
	}
	if text, err = json.Marshal(r); err == nil && len(text) > limit {
		err = fmt.Errorf("the ends of %d workers take %d bytes, more than %d", len(r.Deaths), len(text), limit)
	}
	return text, err
}
