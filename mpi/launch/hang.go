package launch

import (
	"context"
	"fmt"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/mpi/launch/watch"
)

// Workers hang when none of any node has given a sign of life for HangAfter: one that does may be what the others wait for.
// So each agent tells agent 0 when its own have been quiet for so long, and when they are not any longer, and agent 0 decides. Times are
// told as how long ago, since clocks differ.

// keyQuiet is where an agent, the first number, says so for the n-th time in the round, the second one.
const keyQuiet = "quiet/%d/%d"

// quiet is what an agent says of its workers.
type quiet struct {
	Quiet bool        `json:"quiet"`           // they have given no sign of life for HangAfter, or have ended
	Ranks []quietRank `json:"ranks,omitempty"` // those that have not ended
}

// quietRank is a worker that gives no signs of life.
type quietRank struct {
	Rank  int           `json:"rank"`
	Host  string        `json:"host"`
	For   time.Duration `json:"for"`   // since its last sign
	Beats bool          `json:"beats"` // only its heartbeat file counts
	Place watch.Place   `json:"place"` // where it is
}

// heard is what agent 0 was told.
type heard struct {
	quiet
	agent int
	at    time.Time // on agent 0's clock
}

// lookout watches for signs of life of one agent's workers.
type lookout struct {
	watch *watch.Watch
	beats *heartbeats
	quiet bool          // as was told
	heard map[int]heard // at agent 0: what each agent said last
}

// lookEvery is how often an agent looks: so rarely that it costs nothing, but several times in a limit that is short.
func (c AgentConfig) lookEvery() time.Duration {
	const times, seldom, often = 20, 15 * time.Second, time.Second
	return min(max(c.HangAfter/times, often), seldom, c.HangAfter/8)
}

// lookOut begins to watch the workers, all of which have been started. The result ends it.
func (s *supervisor) lookOut() (end func()) {
	if s.cfg.HangAfter <= 0 || s.mine != nil || len(s.workers) == 0 {
		return func() {}
	}
	s.lookout = &lookout{
		watch: watch.New(s.cfg.HangAfter, len(s.workers)), beats: newHeartbeats(s.round, s.workers), heard: make(map[int]heard),
	}
	tick := time.NewTicker(s.cfg.lookEvery())
	s.looks = tick.C
	return tick.Stop
}

// look looks at the workers once, and tells what has changed. Once they are being stopped there is nothing to look for.
func (s *supervisor) look() {
	if s.mine != nil || s.outcome != nil || s.stop.stage > running {
		s.looks = nil
		return
	}
	samples, err := s.samples()
	if err != nil {
		s.cfg.Log.Warn("whether the workers give signs of life is not known", "error", err)
		return
	}
	now := s.lookout.watch.Observe(time.Now(), samples)
	if now == s.lookout.quiet {
		return
	}
	said := quiet{Quiet: now}
	if now {
		said.Ranks = s.quietRanks()
	}
	if s.cfg.Index == 0 {
		s.lookout.quiet = now
		s.hear(heard{said, 0, time.Now()})
		return
	}
	select {
	case s.talk.says <- said:
		s.lookout.quiet = now
	default: // agent 0 does not answer, as will be noticed; else it is said next time
	}
}

// samples is what is seen of the workers at this moment.
func (s *supervisor) samples() ([]watch.Sample, error) {
	samples := make([]watch.Sample, len(s.workers))
	beats := s.lookout.beats.look()
	var leaders, at []int
	for i, w := range s.workers {
		samples[i] = watch.Sample{Heartbeat: beats[i], Logged: w.out.Grown() + w.errs.Grown(), Ended: !w.ended.IsZero()}
		if w.ended.IsZero() {
			leaders, at = append(leaders, w.process.Pid()), append(at, i)
		}
	}
	if len(leaders) == 0 {
		return samples, nil
	}
	usages, err := proc.Usages(leaders)
	for i, u := range usages {
		samples[at[i]].CPU, samples[at[i]].Stopped = u.CPU, u.Stopped()
	}
	return samples, err
}

// quietRanks are this agent's workers that give no sign, with where they are now.
func (s *supervisor) quietRanks() (list []quietRank) {
	for _, q := range s.lookout.watch.Quiet() {
		if len(list) == maxRanks {
			break
		}
		w := s.workers[q.Worker]
		place := watch.Where(w.process.Pid())
		place.Stopped = place.Stopped || q.Stopped
		list = append(list, quietRank{Rank: w.place.Rank, Host: s.cfg.Host, For: q.For, Beats: q.Beats, Place: place})
	}
	return list
}

// hear is agent 0's: once all agents are quiet, and a worker is left anywhere, the run hangs.
func (s *supervisor) hear(h heard) {
	if s.lookout == nil || s.mine != nil || s.outcome != nil {
		return
	}
	s.lookout.heard[h.agent] = h
	var all []silentRank
	for _, m := range s.round.plan.Members {
		h := s.lookout.heard[m.Index]
		if !h.Quiet {
			return
		}
		for _, r := range h.Ranks {
			all = append(all, silentRank{r, h.agent, h.at.Add(-r.For)})
		}
	}
	if len(all) == 0 {
		return
	}
	s.hung = newHang(all, s.cfg.lookEvery())
	s.propose(s.cfg.hangOutcome(s.hung, time.Now()))
}

// sayQuiet tells agent 0 what this agent has to say of its workers.
func (t *talk) sayQuiet(ctx context.Context, r *round) {
	for n := 0; ; n++ {
		select {
		case said := <-t.says:
			if err := setJSON(ctx, r.store, fmt.Sprintf(keyQuiet, r.cfg.Index, n), said); err != nil {
				return // agent 0 is lost, as everybody notices
			}
		case <-ctx.Done():
			return
		}
	}
}

// hearAll begins to hear what the members say of their workers.
func (t *talk) hearAll(ctx context.Context, r *round) {
	if r.cfg.HangAfter <= 0 {
		return
	}
	for _, g := range r.plan.guests {
		t.wg.Go(func() { t.hearQuiet(ctx, r, g.index) })
	}
}

// hearQuiet hears what a member says of its workers.
func (t *talk) hearQuiet(ctx context.Context, r *round, index int) {
	for n := 0; ; n++ {
		key := fmt.Sprintf(keyQuiet, index, n)
		said, err := getJSON[quiet](ctx, r.store, key)
		if err != nil {
			return
		}
		select {
		case t.heard <- heard{said, index, time.Now()}:
		case <-ctx.Done():
			return
		}
		if _, err := r.store.Delete(ctx, key); err != nil {
			return
		}
	}
}
