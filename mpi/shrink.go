package mpi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ddpbatch/mpi/internal/engine"
)

// Shrink makes a Comm of the ranks of c that are left, in the order of their ranks. All of them call it, once, after c has failed. Shrink
// leaves out ranks whose process has ended, ranks that have closed c, and ranks that do not answer within Config.Timeout. A rank that
// answers later gets an error. Shrink fails unless more than half of the ranks that have not ended answer, so that two parts of a group
// cannot both continue.
//
// A rank that dies while the others agree may still be in the new Comm. Then that Comm is broken from the start on all its ranks; call
// Shrink on it.
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	k := c.core
	if k.group == nil {
		return c.Dup(ctx)
	}
	var made *Comm
	err := k.exclusively(ctx, "shrink", func(ctx context.Context) error {
		ranks, err := k.survivors(ctx)
		if err != nil {
			return err
		}
		made, err = k.newSubgroup(ctx, ranks, shrinkMark)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("shrink to the survivors: %w", err)
	}
	return made, nil
}

// shrinkMark stands for the moment of a Shrink. It differs from the number of every call.
const shrinkMark = 1 << 62

// survivors agrees with the other ranks on which ranks are left.
func (k *core) survivors(ctx context.Context) ([]int, error) {
	if k.survey == nil {
		group, err := k.world.engine.LenientGroup(childID(k.group.ID(), 0, shrinkMark), k.members)
		if err != nil {
			return nil, err
		}
		k.survey = newSurvey(group, k.group.HasLeft)
	}
	s := k.survey
	if s.decided != nil {
		return nil, errors.New("this Comm was shrunk before: call Shrink on the Comm that it returned")
	}
	if err := s.agree(ctx, k.config().Timeout); err != nil {
		return nil, err
	}
	go s.answerLateAsks()
	var ranks []int
	for rank, in := range s.decided {
		if in == 1 {
			ranks = append(ranks, rank)
		}
	}
	if s.decided[s.group.Rank()] != 1 {
		return nil, errors.New("the other ranks have left this rank out, because it did not answer them in time")
	}
	return ranks, nil
}

// survey is how the ranks of a broken group find out which of them are left.
//
// The lowest rank that has not ended is the coordinator: it asks all others, and decides on those that join. A rank joins only one
// coordinator at a time, until that one ends or does not answer. A decision needs more than half of the ranks that have not ended, so two
// coordinators cannot both decide. A rank that knows the decision sends it to every rank that asks, as long as the connections last. So all
// ranks get the decision even if the coordinator dies while it sends it.
type survey struct {
	group    *engine.Group
	excluded []bool      // by rank: it had left before the survey
	ended    []engine.Op // by rank: done when the rank has ended
	silent   []bool      // by rank: it did not answer in time as the coordinator

	in       engine.Op // the next message of any rank
	buffer   []byte
	promised int          // the rank that this one has joined; -1: none
	decided  []byte       // by rank: 1 for ranks of the new Comm; nil before the decision
	joined   []surveyKind // by rank: its answer to this coordinator
}

// surveyKind is the first byte of a message. In a decision, one byte for each rank follows.
type surveyKind byte

const (
	surveyAsk      surveyKind = iota + 1 // a coordinator asks a rank to join
	surveyJoin                           // the rank joins
	surveyRefuse                         // the rank has joined another coordinator
	surveyDecision                       // the ranks of the new Comm
)

// The tags of a survey's messages.
const (
	surveyTag = 1
	neverTag  = 2 // never sent: a receive with it ends when the sender does
)

func newSurvey(group *engine.Group, hasLeft func(rank int) bool) *survey {
	size := group.Size()
	s := &survey{
		group: group, promised: -1, buffer: make([]byte, 1+size),
		excluded: make([]bool, size), ended: make([]engine.Op, size), silent: make([]bool, size), joined: make([]surveyKind, size),
	}
	for rank := range size {
		if rank == group.Rank() {
			continue
		}
		s.excluded[rank] = hasLeft(rank)
		group.RecvMessage(&s.ended[rank], rank, surveyLabel(neverTag), nil)
	}
	s.postReceive()
	return s
}

func surveyLabel(tag uint64) engine.Call {
	return engine.Call{Collective: uint8(messageCall), Seq: tag}
}

func (s *survey) postReceive() {
	s.group.RecvMessage(&s.in, engine.Any, surveyLabel(surveyTag), s.buffer)
}

// gone reports whether a rank has left or ended.
func (s *survey) gone(rank int) bool { return s.excluded[rank] || s.ended[rank].Done() }

// agree returns when there is a decision.
func (s *survey) agree(ctx context.Context, timeout time.Duration) error {
	for s.decided == nil {
		coordinator := 0
		for coordinator != s.group.Rank() && (s.gone(coordinator) || s.silent[coordinator]) {
			coordinator++
		}
		if coordinator == s.group.Rank() {
			return s.coordinate(ctx, timeout)
		}
		// The coordinator itself waits up to timeout for the others.
		err := s.receiveUntil(ctx, 2*timeout, func() bool { return s.decided != nil || s.gone(coordinator) })
		if errors.Is(err, errNoAnswer) {
			s.silent[coordinator] = true
		} else if err != nil {
			return err
		}
		if s.promised == coordinator && s.decided == nil {
			s.promised = -1
		}
	}
	return nil
}

// coordinate asks all other ranks, and decides.
func (s *survey) coordinate(ctx context.Context, timeout time.Duration) error {
	self := s.group.Rank()
	s.promised = self
	clear(s.joined)
	for rank := range s.joined {
		if rank != self && !s.gone(rank) {
			s.send(rank, surveyAsk)
		}
	}
	err := s.receiveUntil(ctx, timeout, func() bool {
		if s.decided != nil {
			return true
		}
		for rank, answer := range s.joined {
			if rank != self && answer == 0 && !s.gone(rank) {
				return false
			}
		}
		return true
	})
	if err != nil && !errors.Is(err, errNoAnswer) {
		return err
	}
	if s.decided == nil {
		if err := s.decide(); err != nil {
			s.promised = -1
			return err
		}
	}
	for rank := range s.joined {
		if rank != self && !s.gone(rank) {
			s.send(rank, surveyDecision)
		}
	}
	return nil
}

// decide makes a decision for the ranks that have joined, if they are enough.
func (s *survey) decide() error {
	self, there, joined := s.group.Rank(), 0, 0
	decided := make([]byte, len(s.joined))
	for rank, answer := range s.joined {
		if rank == self || answer == surveyJoin && !s.gone(rank) {
			decided[rank] = 1
			joined++
		}
		if rank == self || !s.gone(rank) {
			there++
		}
	}
	if 2*joined <= there {
		return fmt.Errorf("only %d of the %d ranks that have not ended answered: more than half must answer", joined, there)
	}
	s.decided = decided
	return nil
}

// errNoAnswer says that no message came within the time-out.
var errNoAnswer = errors.New("no answer")

// receiveUntil handles messages until finished returns true. After timeout it returns errNoAnswer.
func (s *survey) receiveUntil(ctx context.Context, timeout time.Duration, finished func() bool) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !finished() {
		err := s.group.Watch(limited, func() bool { return s.in.Done() || finished() })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if limited.Err() != nil {
			return errNoAnswer
		}
		if err != nil {
			return err
		}
		if s.in.Done() {
			if err := s.handle(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// handle answers the message that has come, and posts a receive for the next one.
func (s *survey) handle(ctx context.Context) error {
	if err := s.group.Wait(ctx, &s.in); err != nil {
		return err
	}
	from, size := s.group.Source(&s.in)
	what := surveyKind(s.buffer[0])
	switch {
	case size == 1 && what == surveyAsk && s.decided != nil:
		s.send(from, surveyDecision)
	case size == 1 && what == surveyAsk && (s.promised < 0 || s.promised == from):
		s.promised = from
		s.send(from, surveyJoin)
	case size == 1 && what == surveyAsk:
		s.send(from, surveyRefuse)
	case size == 1 && (what == surveyJoin || what == surveyRefuse):
		s.joined[from] = what
	case size == len(s.buffer) && what == surveyDecision && s.decided == nil:
		s.decided = append([]byte(nil), s.buffer[1:]...)
	}
	s.postReceive()
	return nil
}

// send sends a message. If it does not arrive, the answer does not come, or the rank ends.
func (s *survey) send(to int, what surveyKind) {
	text := []byte{byte(what)}
	if what == surveyDecision {
		text = append(text, s.decided...)
	}
	s.group.SendMessage(new(engine.Op), to, surveyLabel(surveyTag), text)
}

// answerLateAsks sends the decision to ranks that still ask, until the connections end.
func (s *survey) answerLateAsks() {
	for {
		if err := s.group.Watch(context.Background(), s.in.Done); err != nil {
			return
		}
		if err := s.handle(context.Background()); err != nil {
			return
		}
	}
}
