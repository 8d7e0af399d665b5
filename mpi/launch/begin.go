package launch

import (
	"context"
	"os"

	"ddpbatch/internal/proc"
)

// start starts this agent's workers in the order of their ranks, until one
// cannot be, or the run is to end: many take their time.
func (s *supervisor) start(ctx context.Context) {
	places := s.round.plan.places(s.cfg)
	s.exits = make(chan *worker, len(places))
	s.before, _ = proc.ReadMemory(os.DirFS("/")) // what is not known is no evidence; see memory
	s.round.m.keeper.mark(s.round.cookie)
	path, err := s.cfg.findCommand()
	if err == nil {
		s.output, err = s.round.openOutput()
	}
	var devices *devices
	if err == nil {
		devices, err = newDevices(s.cfg)
	}
	for _, place := range places {
		if err == nil {
			err = s.startOne(place, path, devices)
		}
		if err != nil {
			s.propose(s.cfg.startOutcome(place.Rank, err))
			return
		}
		if s.glance(ctx); s.mine != nil || s.suspect != nil || s.outcome != nil || s.finished {
			return // who is started now would not be told to stop
		}
	}
}

// glance acts on what has happened by now to the workers that run already, or to the run, and waits for nothing.
func (s *supervisor) glance(ctx context.Context) {
	for {
		select {
		case w := <-s.exits:
			s.workerEnded(ctx, w)
			continue
		case v := <-s.talk.outcomes:
			s.decided(v)
			continue
		case g := <-s.talk.lost:
			s.lost(g)
			continue
		case l := <-s.talk.lasts:
			s.ended(l)
			continue
		default:
		}
		if s.mine == nil && s.outcome == nil && s.toStop() {
			s.told = nil
			s.propose(s.cfg.toldOutcome(ctx))
		}
		return
	}
}

func (s *supervisor) startOne(p Place, path string, devices *devices) error {
	plan, err := devices.of(p)
	if err != nil {
		return err
	}
	w, err := s.round.newWorker(p, path, plan, s.output)
	if err != nil {
		return err
	}
	if err := w.start(s.round.m.keeper.guard, func(w *worker) { s.exits <- w }); err != nil {
		return execError(s.cfg.Command[0], err)
	}
	s.cfg.Log.Debug("worker started", "rank", p.Rank, "pid", w.cmd.Process.Pid)
	s.workers = append(s.workers, w)
	s.alive++
	return nil
}
