package supervise

import (
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/mpi/launch/watch"
)

// Workers hang when no worker of any node has given a sign of life for HangAfter: a worker that gives one may be what the others
// wait for. So each agent reports to agent 0 when its own workers have been quiet for that long, and when they are not quiet any
// more. Agent 0 decides. Times are reported as durations until the report, since clocks differ. The same report has the workers'
// steps (stepWatch).

// quiet is an agent's report on its workers' signs of life.
type quiet struct {
	Quiet bool        `json:"quiet"`           // all have given no sign of life for HangAfter, or have ended
	Ranks []quietRank `json:"ranks,omitempty"` // workers that have not ended
}

// quietRank is a worker that gives no signs of life.
type quietRank struct {
	Rank      int             `json:"rank"`
	Host      string          `json:"host"`
	For       time.Duration   `json:"for"`   // since its last sign
	Beats     bool            `json:"beats"` // only its heartbeat file counts
	Condition watch.Condition `json:"place"` // where it is
}

// quietReport is an agent's last report, at agent 0.
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
	quiet   bool                // as last reported
	reports map[int]quietReport // at agent 0: each agent's last report
}

// signs is the source of the workers' signs of life: processSigns, or a test's.
type signs interface {
	samples(workers []*worker, beats []heartbeat) ([]watch.Sample, error) // an observation of them now, and of their files
	where(w *worker) watch.Condition                                      // where a worker waits
}

// observeEvery is the time between observations: long enough to cost hardly anything, but several fit even into a short limit.
func (c Config) observeEvery() time.Duration {
	const times, seldom, often = 20, 15 * time.Second, time.Second
	return min(max(c.HangAfter/times, often), seldom, c.HangAfter/8)
}

// watchForHangs begins to watch the workers, all of which have been started. end ends that.
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

// observe observes the workers once, and reports what has changed. It ends the watch once they are being stopped.
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

// observeSigns looks for signs of life, and returns what to report, or nil if nothing has changed.
func (s *Supervisor) observeSigns(beats []heartbeat) *quiet {
	samples, err := s.hangWatch.signs.samples(s.workers, beats)
	if err != nil {
		s.cfg.Log.Warn("could not look for signs of life of the workers", "error", err)
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

// reportWorkers passes on news of the workers, if there is any. It returns false if agent 0 has not taken the previous report: it
// is busy, or does not answer, which will be noticed. The news is then reported after the next observation.
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

// receiveWorkers receives a report at agent 0.
func (s *Supervisor) receiveWorkers(r receivedReport) {
	s.steps.receive(r.Host, r.Beats)
	if r.Quiet != nil {
		s.receiveQuiet(quietReport{*r.Quiet, r.agent, r.at})
	}
}

// processSigns observes processes and their output. If a worker's heartbeat file has changed since the previous observation, only
// that counts, so its processes are not looked for: that requires reading all processes of the machine.
type processSigns struct {
	beats []heartbeat // of the previous observation; nil: none yet
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

// quietRanks lists this agent's workers that give no sign of life, with where they are now.
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

// receiveQuiet receives a report at agent 0. Once the workers of all agents are quiet, and any worker is left, the run hangs.
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
