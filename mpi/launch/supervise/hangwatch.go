package supervise

import (
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/mpi/launch/watch"
)

// Workers hang when none of any node has given a sign of life for HangAfter: one that does may be what the others wait for.
// So each agent tells agent 0 when its own have been quiet for so long, and when they are not any longer, and agent 0 decides. Times are
// told as how long ago, since clocks differ. How far the workers are (stepWatch) is said in the same report.

// quiet is what an agent says of its workers.
type quiet struct {
	Quiet bool        `json:"quiet"`           // they have given no sign of life for HangAfter, or have ended
	Ranks []quietRank `json:"ranks,omitempty"` // those that have not ended
}

// quietRank is a worker that gives no signs of life.
type quietRank struct {
	Rank      int             `json:"rank"`
	Host      string          `json:"host"`
	For       time.Duration   `json:"for"`   // since its last sign
	Beats     bool            `json:"beats"` // only its heartbeat file counts
	Condition watch.Condition `json:"place"` // where it is
}

// quietReport is what agent 0 knows of an agent.
type quietReport struct {
	quiet
	agent int
	at    time.Time // on agent 0's clock
}

// hangWatch watches for signs of life of one agent's workers.
type hangWatch struct {
	watch   *watch.Watch
	beats   *heartbeats
	signs   signs
	quiet   bool                // as was told
	reports map[int]quietReport // at agent 0: what each agent said last
}

// signs is where signs of life of workers are looked for: processSigns, but in tests of who hangs.
type signs interface {
	samples(workers []*worker, beats []heartbeat) ([]watch.Sample, error) // what is seen of them at this moment, and of their files
	where(w *worker) watch.Condition                                      // where one is held up
}

// observeEvery is how often an agent looks: so rarely that it costs nothing, but several times in a limit that is short.
func (c Config) observeEvery() time.Duration {
	const times, seldom, often = 20, 15 * time.Second, time.Second
	return min(max(c.HangAfter/times, often), seldom, c.HangAfter/8)
}

// watchForHangs begins to watch the workers, all of which have been started. The result ends it.
func (s *Supervisor) watchForHangs() (end func()) {
	if s.cfg.HangAfter <= 0 || s.mine != nil || len(s.workers) == 0 {
		return func() {}
	}
	s.hangWatch = &hangWatch{
		watch: watch.New(s.cfg.HangAfter, len(s.workers)), beats: newHeartbeats(s.round, s.workers), signs: &processSigns{},
		reports: make(map[int]quietReport),
	}
	s.steps = newStepWatch(s)
	tick := time.NewTicker(s.cfg.observeEvery())
	s.observeDue = tick.C
	return tick.Stop
}

// observe looks at the workers once, and tells what has changed. Once they are being stopped there is nothing to look for.
func (s *Supervisor) observe() {
	if s.mine != nil || s.outcome != nil || s.stop.stage > running {
		s.observeDue = nil
		return
	}
	beats := s.hangWatch.beats.look()
	said := workersReport{Host: s.cfg.Host, Beats: s.steps.fresh(beats), Quiet: s.observeSigns(beats)}
	if s.reportWorkers(said) {
		s.steps.reported(said.Beats)
		if said.Quiet != nil {
			s.hangWatch.quiet = said.Quiet.Quiet
		}
	}
	s.endStepWindow(time.Now())
}

// observeSigns looks for signs of life, and returns what is to be said of them; nil: it was said before.
func (s *Supervisor) observeSigns(beats []heartbeat) *quiet {
	samples, err := s.hangWatch.signs.samples(s.workers, beats)
	if err != nil {
		s.cfg.Log.Warn("whether the workers give signs of life is not known", "error", err)
		return nil
	}
	said := quiet{Quiet: s.hangWatch.watch.Observe(time.Now(), samples)}
	if said.Quiet == s.hangWatch.quiet {
		return nil
	}
	if said.Quiet {
		said.Ranks = s.quietRanks()
	}
	return &said
}

// reportWorkers passes on what is new of the workers, if anything is; false: agent 0 has not taken what was said before. Then it does not
// answer, as will be noticed, or is busy, and it is said at the next look.
func (s *Supervisor) reportWorkers(said workersReport) bool {
	if said.Quiet == nil && len(said.Beats) == 0 {
		return true
	}
	if s.cfg.Index == 0 {
		s.receiveWorkers(receivedReport{said, 0, time.Now()})
		return true
	}
	select {
	case s.control.workersOut <- said:
		return true
	default:
		return false
	}
}

// receiveWorkers is agent 0's.
func (s *Supervisor) receiveWorkers(r receivedReport) {
	s.steps.receive(r.Host, r.Beats)
	if r.Quiet != nil {
		s.receiveQuiet(quietReport{*r.Quiet, r.agent, r.at})
	}
}

// processSigns looks at processes and their output. Of a worker whose heartbeat file has changed since the look before nothing else counts,
// so its processes are not looked for: all of a machine's have to be read for that.
type processSigns struct {
	beats []heartbeat // at the look before; nil: there was none
}

func (p *processSigns) samples(workers []*worker, beats []heartbeat) ([]watch.Sample, error) {
	samples := make([]watch.Sample, len(workers))
	var leaders, at []int
	for i, w := range workers {
		samples[i] = watch.Sample{Heartbeat: beats[i].at, Logged: w.out.Grown() + w.errs.Grown(), Ended: !w.ended.IsZero()}
		beaten := p.beats != nil && !beats[i].at.IsZero() && !beats[i].at.Equal(p.beats[i].at)
		if w.ended.IsZero() && !beaten {
			leaders, at = append(leaders, w.process.Pid()), append(at, i)
		}
	}
	p.beats = beats
	if len(leaders) == 0 {
		return samples, nil
	}
	usages, err := proc.Usages(leaders)
	for i, u := range usages {
		samples[at[i]].CPU, samples[at[i]].Stopped = u.CPU, u.Stopped()
	}
	return samples, err
}

func (*processSigns) where(w *worker) watch.Condition { return watch.Where(w.process.Pid()) }

// quietRanks are this agent's workers that give no sign, with where they are now.
func (s *Supervisor) quietRanks() (list []quietRank) {
	for _, q := range s.hangWatch.watch.Quiet() {
		if len(list) == maxRanks {
			break
		}
		w := s.workers[q.Worker]
		condition := s.hangWatch.signs.where(w)
		condition.Stopped = condition.Stopped || q.Stopped
		list = append(list, quietRank{Rank: w.numbers.Rank, Host: s.cfg.Host, For: q.For, Beats: q.Beats, Condition: condition})
	}
	return list
}

// receiveQuiet is agent 0's: once all agents are quiet, and a worker is left anywhere, the run hangs.
func (s *Supervisor) receiveQuiet(h quietReport) {
	if s.hangWatch == nil || s.mine != nil || s.outcome != nil {
		return
	}
	s.hangWatch.reports[h.agent] = h
	var all []silentRank
	for _, m := range s.round.layout.Members {
		h := s.hangWatch.reports[m.Index]
		if !h.Quiet {
			return
		}
		for _, r := range h.Ranks {
			all = append(all, silentRank{quietRank: r, agent: h.agent, since: h.at.Add(-r.For)})
		}
	}
	if len(all) == 0 {
		return
	}
	s.hung = newHang(all, s.cfg.observeEvery())
	s.propose(s.cfg.hangOutcome(s.hung, time.Now()))
}
