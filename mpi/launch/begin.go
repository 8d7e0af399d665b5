package launch

import "io"

// start starts this agent's workers in the order of their ranks, until one
// cannot be.
func (s *supervisor) start() {
	places := s.m.plan.places(s.cfg)
	s.exits = make(chan *worker, len(places))
	out, errs := newConsoles(s.cfg.Stdout, s.cfg.Stderr)
	path, err := s.cfg.findCommand()
	for _, place := range places {
		if err == nil {
			err = s.startOne(place, path, out, errs)
		}
		if err != nil {
			s.propose(s.cfg.startOutcome(place.Rank, err))
			return
		}
	}
}

func (s *supervisor) startOne(p Place, path string, out, errs io.Writer) error {
	w, err := newWorker(s.cfg, s.m, p, path, out, errs)
	if err != nil {
		return err
	}
	if err := w.start(func(w *worker) { s.exits <- w }); err != nil {
		return execError(s.cfg.Command[0], err)
	}
	s.cfg.Log.Debug("worker started", "rank", p.Rank, "pid", w.cmd.Process.Pid)
	s.workers = append(s.workers, w)
	s.alive++
	return nil
}
