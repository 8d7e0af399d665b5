package algorithm

// exchanger combines a whole buffer with that of another rank, in place, again and again.
type exchanger struct {
	Port
	r          Reduction
	buf        []byte
	steps, lag int
	slots      slots
	sent       []Ticket // room for one send to each rank, for each step under way
}

// hop is one exchange: the buffer is combined with that of rank from, which is
// that of lower ranks or of higher ones, and goes to ranks to, to+stride and so on below end.
type hop struct {
	from            int
	lower           bool
	to, stride, end int
}

func newExchanger(p Port, buf []byte, r Reduction) exchanger {
	steps := r.segments(len(buf))
	lag := min(window, steps)
	return exchanger{Port: p, r: r, buf: buf, steps: steps, lag: lag,
		slots: newSlots(p, r.widest(len(buf), steps), lag), sent: p.Tickets(lag * p.Size())}
}

// run does one hop, segment by segment.
func (x *exchanger) run(h hop) error {
	var received [window]Ticket
	post := func(k int) error {
		segment := x.r.part(x.buf, k, x.steps)
		received[k%x.lag] = x.Recv(h.from, x.slots.at(k, len(segment)))
		for i, to := k%x.lag*x.Size(), h.to; to < h.end; i, to = i+1, to+h.stride {
			x.sent[i] = x.Send(to, segment)
		}
		return nil
	}
	finish := func(k int) error {
		if err := x.Wait(received[k%x.lag]); err != nil {
			return err
		}
		for i, to := k%x.lag*x.Size(), h.to; to < h.end; i, to = i+1, to+h.stride {
			if err := x.Wait(x.sent[i]); err != nil {
				return err
			}
		}
		segment := x.r.part(x.buf, k, x.steps)
		x.r.combine(segment, x.slots.at(k, len(segment)), segment, h.lower)
		return nil
	}
	if x.steps == 1 { // short messages, where every nanosecond counts
		if err := post(0); err != nil {
			return err
		}
		return finish(0)
	}
	return pipeline(x.steps, stage{0, post}, stage{x.lag, finish})
}
