package mpi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ddpbatch/mpi/internal/engine"
)

// Shrink makes a Comm of those ranks of c that are still there, in the order of their ranks. All of them call it, once, after c has
// failed. Ranks whose process has ended, or that have closed c, are left out, and those that do not answer within
// Config.Timeout; these get an error when they do. It fails where no more than half of the ranks that have not ended answer, so that no
// two parts of a group can both go on.
//
// Who dies while the others agree may still be among them: then the new Comm is broken from the start on all its ranks, and Shrink
// is called on that.
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	k := c.core
	if k.group == nil {
		return c.Dup(ctx)
	}
	var made *Comm
	err := k.alone(ctx, "shrink", func(ctx context.Context) error {
		ranks, err := k.survivors(ctx)
		if err != nil {
			return err
		}
		made, err = k.branch(ctx, ranks, shrinkMark)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("shrink to the survivors: %w", err)
	}
	return made, nil
}

// shrinkMark stands for the moment of a Shrink, which no call's number is.
const shrinkMark = 1 << 62

// survivors agrees with the others on who is still there.
func (k *core) survivors(ctx context.Context) ([]int, error) {
	if k.survey == nil {
		group, err := k.world.engine.Remains(childID(k.group.ID(), 0, shrinkMark), k.members)
		if err != nil {
			return nil, err
		}
		k.survey = newSurvey(group, k.group.HasLeft)
	}
	s := k.survey
	if s.decided != nil {
		return nil, errors.New("it has been shrunk before: shrink the Comm that came of that")
	}
	if err := s.reach(ctx, k.config().Timeout); err != nil {
		return nil, err
	}
	go s.linger()
	var ranks []int
	for rank, in := range s.decided {
		if in == 1 {
			ranks = append(ranks, rank)
		}
	}
	if s.decided[s.group.Rank()] == 0 {
		return nil, errors.New("the others have given this rank up, as it did not answer them in time")
	}
	return ranks, nil
}

// survey is how the ranks of a broken group find out who is still there.
//
// The lowest rank that has not ended leads: it asks all others, and decides on those that join. A rank joins one leader only, until
// that one ends or stays silent, and a decision needs more than half of the ranks that have not ended: so there are no two. A rank that knows
// the decision tells it to whoever asks, for as long as the connections last, so that a leader that dies halfway leaves no rank behind.
type survey struct {
	group    *engine.Group
	excluded []bool      // by rank: it had left before
	ended    []engine.Op // by rank: done once it has ended
	silent   []bool      // by rank: it was waited for in vain

	in       engine.Op // the next word of any rank
	word     []byte
	promised int    // the rank that this one has joined; -1: none
	decided  []byte // by rank: 1 for those that go on; nil before
	joined   []word // by rank: what this leader has been answered
}

// word is the first byte of a message; in a decision, one byte for each rank follows.
type word byte

const (
	asks    word = iota + 1 // I lead: do you join?
	joins                   // yes
	refuses                 // no, another
	decides                 // these go on
)

// The tags of a survey's messages.
const (
	wordTag  = 1
	neverTag = 2 // nobody sends it: a receive of it ends when its sender does
)

func newSurvey(group *engine.Group, hasLeft func(rank int) bool) *survey {
	size := group.Size()
	s := &survey{
		group: group, promised: -1, word: make([]byte, 1+size),
		excluded: make([]bool, size), ended: make([]engine.Op, size), silent: make([]bool, size), joined: make([]word, size),
	}
	for rank := range size {
		if rank == group.Rank() {
			continue
		}
		s.excluded[rank] = hasLeft(rank)
		group.RecvMessage(&s.ended[rank], rank, surveyLabel(neverTag), nil)
	}
	s.listen()
	return s
}

func surveyLabel(tag uint64) engine.Call {
	return engine.Call{Collective: uint8(messageCall), Seq: tag}
}

func (s *survey) listen() {
	s.group.RecvMessage(&s.in, engine.Any, surveyLabel(wordTag), s.word)
}

// gone tells whether a rank will not be among the survivors.
func (s *survey) gone(rank int) bool { return s.excluded[rank] || s.ended[rank].Done() }

// reach returns when it is decided.
func (s *survey) reach(ctx context.Context, timeout time.Duration) error {
	for s.decided == nil {
		leader := 0
		for leader != s.group.Rank() && (s.gone(leader) || s.silent[leader]) {
			leader++
		}
		if leader == s.group.Rank() {
			return s.lead(ctx, timeout)
		}
		// A leader waits for others for up to a time-out itself.
		err := s.hear(ctx, 2*timeout, func() bool { return s.decided != nil || s.gone(leader) })
		if errors.Is(err, errSilence) {
			s.silent[leader] = true
		} else if err != nil {
			return err
		}
		if s.promised == leader && s.decided == nil {
			s.promised = -1
		}
	}
	return nil
}

// lead asks everybody, and decides.
func (s *survey) lead(ctx context.Context, timeout time.Duration) error {
	self := s.group.Rank()
	s.promised = self
	clear(s.joined)
	for rank := range s.joined {
		if rank != self && !s.gone(rank) {
			s.say(rank, asks)
		}
	}
	err := s.hear(ctx, timeout, func() bool {
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
	if err != nil && !errors.Is(err, errSilence) {
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
			s.say(rank, decides)
		}
	}
	return nil
}

// decide takes those that have joined, if they are enough.
func (s *survey) decide() error {
	self, there, joined := s.group.Rank(), 0, 0
	decided := make([]byte, len(s.joined))
	for rank, answer := range s.joined {
		if rank == self || answer == joins && !s.gone(rank) {
			decided[rank] = 1
			joined++
		}
		if rank == self || !s.gone(rank) {
			there++
		}
	}
	if 2*joined <= there {
		return fmt.Errorf("only %d of the %d ranks that have not ended answer: that is not more than half", joined, there)
	}
	s.decided = decided
	return nil
}

// errSilence says that nothing was heard for as long as it was waited for.
var errSilence = errors.New("no answer")

// hear acts on what comes until enough tells so, or errSilence.
func (s *survey) hear(ctx context.Context, timeout time.Duration, enough func() bool) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !enough() {
		err := s.group.Watch(limited, func() bool { return s.in.Done() || enough() })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if limited.Err() != nil {
			return errSilence
		}
		if err != nil {
			return err
		}
		if s.in.Done() {
			if err := s.act(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// act answers the word that has come, and listens for the next one.
func (s *survey) act(ctx context.Context) error {
	if err := s.group.Wait(ctx, &s.in); err != nil {
		return err
	}
	from, size := s.group.Source(&s.in)
	what := word(s.word[0])
	switch {
	case size == 1 && what == asks && s.decided != nil:
		s.say(from, decides)
	case size == 1 && what == asks && (s.promised < 0 || s.promised == from):
		s.promised = from
		s.say(from, joins)
	case size == 1 && what == asks:
		s.say(from, refuses)
	case size == 1 && (what == joins || what == refuses):
		s.joined[from] = what
	case size == len(s.word) && what == decides && s.decided == nil:
		s.decided = append([]byte(nil), s.word[1:]...)
	}
	s.listen()
	return nil
}

// say sends a word. Whether it arrives shows in the answer, or in the rank's end.
func (s *survey) say(to int, what word) {
	text := []byte{byte(what)}
	if what == decides {
		text = append(text, s.decided...)
	}
	s.group.SendMessage(new(engine.Op), to, surveyLabel(wordTag), text)
}

// linger tells the decision to whoever still asks, until the connections end.
func (s *survey) linger() {
	for {
		if err := s.group.Watch(context.Background(), s.in.Done); err != nil {
			return
		}
		if err := s.act(context.Background()); err != nil {
			return
		}
	}
}
