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
	"ddpbatch/mpi/launch/recovery"
)

const (
	maxRanks  = 256 // the most ranks that a verdict lists
	tailLines = 600 // of each stream of a worker that failed; blame.Words bounds them further
)

// endsReport is an agent's report on how its workers have ended.
type endsReport struct {
	Host   string        `json:"host"`
	Deaths []blame.Death `json:"deaths,omitempty"` // of workers that have ended, well or not; Ended is relative to the report, so negative
	Stuck  int           `json:"stuck,omitempty"`  // processes that not even KILL ended
	Stacks []stacks      `json:"stacks,omitempty"` // of workers that hung
	Silent time.Duration `json:"silent,omitempty"` // for how long none of the workers had given a sign of life when they were told to stop
}

// report makes the report on this agent's workers. left is how many of their processes are left.
func (s *Supervisor) report(left int) endsReport {
	r := endsReport{Host: s.cfg.Host, Stuck: left, Stacks: s.stacks}
	if s.hangWatch != nil {
		r.Silent = s.hangWatch.watch.Silence()
	}
	memory := s.memory()
	for _, w := range s.workers {
		switch {
		case w.ended.IsZero():
			r.Stuck++
		case w.exit == 0 && w.signal == 0: // its last lines do not matter
			r.Deaths = append(r.Deaths, blame.Death{
				Rank: w.numbers.Rank, LocalRank: w.numbers.LocalRank, Host: s.cfg.Host, Ended: -time.Since(w.ended), Stopping: w.followed,
			})
		default:
			r.Deaths = append(r.Deaths, s.death(w, memory))
		}
	}
	return r
}

// AllEnded reports whether all processes of agent 0's own workers have ended.
func (s *Supervisor) AllEnded() bool { return s.reports[0].Stuck == 0 }

// death describes the end of a worker that failed, as far as its own node knows it.
func (s *Supervisor) death(w *worker, memory proc.OutOfMemory) blame.Death {
	d := blame.Death{
		Rank: w.numbers.Rank, LocalRank: w.numbers.LocalRank, Host: s.cfg.Host,
		Exit: w.exit, Signal: int(w.signal), Ended: -time.Since(w.ended), Stopping: w.followed, LogPath: w.lastLog(),
		Tail: w.words, Contained: s.cfg.Container != nil, Simulated: s.cfg.OneMachine,
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
			s.cfg.Log.Warn("could not read a worker's error file", "rank", w.numbers.Rank, "error", err)
		}
	}
	if d.ErrorFile != nil { // reports must not contain values that may be secret
		secrets := redact.ValuesOf(s.cfg.Env)
		d.ErrorFile.Message, d.ErrorFile.Stack = secrets.In(d.ErrorFile.Message), secrets.In(d.ErrorFile.Stack)
	}
	if blame.LacksModule(d) {
		d.Python = s.cfg.python()
	}
	return d
}

// python is the Python that the workers' command names. If the command is another kind of program, such as a shell, it is the
// python3 of its PATH. It is "" if none is found, or if the workers run in a container.
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

// tail returns the worker's last lines so far, for reports, without values of its variables that may be secret. It blanks the
// values before lines are cut, because a partial value would not be found.
func (w *worker) tail() []string {
	secrets := redact.ValuesOf(w.cmd.Env)
	return blame.Words(secrets.InLines(w.errs.Tail(tailLines)), secrets.InLines(w.out.Tail(tailLines)))
}

// lastLog returns the file that holds the worker's last lines: that of standard error or, if standard error is empty, that of
// standard output. It returns "" if both are empty, or if no file holds them.
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

// memory is the evidence that this node has run out of memory since the round began.
func (s *Supervisor) memory() proc.OutOfMemory {
	for _, w := range s.workers {
		if w.signal == syscall.SIGKILL {
			now, err := proc.ReadMemory(os.DirFS("/"))
			if err != nil {
				s.cfg.Log.Warn("could not find out whether memory ran out", "error", err)
			}
			return now.Since(s.before)
		}
	}
	return proc.OutOfMemory{}
}

// account completes a round's verdict with how all workers of all agents ended: which rank really failed first, which followed, and
// whether they saved. deaths are all known ends, and chosen is the first failure among them, or -1.
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
		// another rank that saved does not change what follows
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
		v = s.round.explained(v, deaths, chosen)
	}
	return forbidRestart(v, deaths), deaths, chosen
}

// explained returns v with the cause that the last lines of the chosen rank show. If the fault is the rank's node's, the node
// becomes the cause, unless a signal to stop ended the rank: then the agents know too little.
func (r *round) explained(v rundir.Verdict, deaths []blame.Death, chosen int) rundir.Verdict {
	d, found, advice := deaths[chosen], blame.Finding{}, ""
	if v.Cause != causeHang { // a rank that hung was killed for that
		found = blame.Find(d)
		lost, known := blame.LostPeer(deaths, chosen)
		if advice = cmp.Or(found.Advice, lost); known {
			advice = lost
		}
	}
	v.Error, v.Class, v.Advice = found.Error, string(found.Class), cmp.Or(r.portHint(d), advice, r.codeHint(d))
	if v.Cause != causeCrash && v.Cause != causeOOM || syscall.Signal(d.Signal) == syscall.SIGTERM {
		return v
	}
	v.Final, v.Trace = found.Final, found.Trace
	if found.Node {
		v.Cause, v.Nodes = causeNode, append(v.Nodes, d.Host)
	}
	return v
}

// accountInterrupted completes the verdict of a round that was told to end. Its workers have saved if one reports that (exit code
// 75), and none has failed or was killed meanwhile. Workers that end with 0 have nothing to save.
func (s *Supervisor) accountInterrupted(v rundir.Verdict, deaths []blame.Death, all endCounts) (_ rundir.Verdict, failed int) {
	world := s.round.layout.World // a lost agent's workers are not among deaths
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
	case all.clean < world && s.mayHang(deaths):
		v.Message += fmt.Sprintf("; no rank had given a sign of life for at least %v"+recovery.MayHang+" (with a shorter launch.hang, "+
			"the report shows where each rank stands)", span(s.silence()))
	case all.clean == world:
		v.Saved = true
		if v.Signal == int(syscall.SIGTERM) { // 0 means finished, after a warning too; Ctrl-C is a person's cancel
			v.Cause, v.Exit, v.Signal, v.Host = causeDone, 0, 0, ""
			v.Message = fmt.Sprintf("%s, after they had been told to stop", s.cfg.doneOutcome(world).Message)
		}
	}
	return v, failed
}

// silence is how long no worker of any agent had given a sign of life when they were told to stop; 0: not known.
func (s *Supervisor) silence() time.Duration {
	silent := make([]time.Duration, 0, len(s.reports))
	for _, r := range s.reports {
		silent = append(silent, r.Silent)
	}
	if len(silent) < max(1, len(s.round.layout.Members)) {
		return 0
	}
	return slices.Min(silent)
}

// mayHang reports whether the workers had been silent for so long that they may have hung: for a minute, or a third of the round.
func (s *Supervisor) mayHang(deaths []blame.Death) bool {
	const least, most = 15 * time.Second, time.Minute
	lasted := time.Duration(0)
	for _, d := range deaths {
		lasted = max(lasted, d.Ended)
	}
	return s.silence() >= min(max(least, lasted/3), most)
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

// forbidRestart makes v final if a rank exited with 93, whatever the others report.
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

// rankEnds lists the failures, the chosen one first.
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

// blamed returns v with another rank's end as its cause.
func (c Config) blamed(v rundir.Verdict, d blame.Death) rundir.Verdict {
	c.Host = d.Host
	if other, bad := c.endOutcome(d.Rank, d.Exit, syscall.Signal(d.Signal), d.LogPath); bad {
		other.Time = v.Time
		return other
	}
	return v
}

// maxReport bounds an agent's report on its workers' ends: a value of the store has at most store.MaxValue bytes, and agent 0 holds
// the reports of all agents.
const maxReport = 4 << 20

// fewDeaths is how many deaths keep their last lines if those of all are too much.
const fewDeaths = 8

// encode encodes the report as JSON, in at most limit bytes. If that is too little, deaths lose their last lines, later ones first,
// but no death is dropped.
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
