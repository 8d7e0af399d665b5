package distributed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"ddpbatch/checkpoint"
)

var errNoDir = errors.New("rank 0 has no checkpoints folder")

// hello is what every rank tells rank 0 about itself.
type hello struct {
	Arrays    []listing `json:"arrays"`
	Options   chosen    `json:"options"`
	MaxMemory int64     `json:"max_memory"`
	Encode    int64     `json:"encode"` // bytes of buffers that encoding takes
	Failure   *failure  `json:"failure,omitempty"`
}

// chosen is what must be the same on all ranks of the Options.
type chosen struct {
	Async  bool `json:"async"`
	Delta  int  `json:"delta"`
	Local  bool `json:"local"`
	Check  bool `json:"check"`
	Errors int  `json:"errors"`
}

func (c chosen) String() string {
	return fmt.Sprintf("async %v, delta %d, local tier %v, check %v, %d errors", c.Async, c.Delta, c.Local, c.Check, c.Errors)
}

// welcome is what rank 0 answers.
type welcome struct {
	Plan    plan             `json:"plan"`
	Mode    mode             `json:"mode"`
	Place   checkpoint.Place `json:"place"`
	Home    string           `json:"home"`    // the absolute path of the shared folder, as rank 0 has it
	Session uint32           `json:"session"` // tells the files of this Saver from those of another
}

// open is the collective part of New.
func (s *Saver) open(ctx context.Context, arrays []Array) error {
	lists, own := list(arrays)
	h := hello{
		Arrays: lists, MaxMemory: s.o.MaxMemory, Encode: encodeBytes(s.o.Workers), Failure: s.talk.failureOf(own),
		Options: chosen{Async: s.o.Async, Delta: s.o.Delta, Local: s.o.Local != "", Check: s.o.Check != nil, Errors: len(s.o.Errors)},
	}
	w, err := exchange(ctx, s.talk, h, own, func(all []hello) (welcome, error) { return s.welcome(all, own) })
	if err != nil {
		return err
	}
	_, err = beside(ctx, s, func(ctx context.Context) (string, error) {
		own = s.settleIn(ctx, w, arrays)
		return s.tier.trouble(), own
	}, func(all []report[string]) (struct{}, error) {
		s.warnOfTiers(all)
		return struct{}{}, s.talk.error(firstOf(all), own)
	})
	return err
}

// welcome is rank 0's: it checks what all ranks say, and plans. own is rank 0's error with its own arrays.
func (s *Saver) welcome(all []hello, own error) (welcome, error) {
	lists := make([][]listing, len(all))
	for rank, h := range all {
		if h.Failure != nil {
			return welcome{}, s.talk.error(h.Failure, own)
		}
		if first := all[0].Options; h.Options != first {
			return welcome{}, fmt.Errorf("rank %d has other options than rank 0: %v; rank 0: %v", rank, h.Options, first)
		}
		lists[rank] = h.Arrays
	}
	if s.dir == nil {
		return welcome{}, errNoDir
	}
	place := s.dir.Place()
	if s.o.Local != "" && place.Run == "" {
		return welcome{}, errors.New("a node-local tier needs the name of the run, to tell its files from those of other runs")
	}
	home, err := filepath.Abs(place.Path)
	if err != nil {
		return welcome{}, err
	}
	p, err := makePlan(lists)
	if err != nil {
		return welcome{}, err
	}
	loads := p.loads(len(all))
	if err := p.fits(place, loads); err != nil {
		return welcome{}, err
	}
	return welcome{Plan: p, Mode: chooseMode(loads, all), Place: place, Home: home, Session: rand.Uint32()}, nil
}

// settleIn makes this rank ready to save as rank 0 has said.
func (s *Saver) settleIn(ctx context.Context, w welcome, arrays []Array) error {
	rank := s.talk.group.Rank()
	o := checkpoint.Options{FS: s.o.FS, Workers: s.o.Workers, Log: s.log}
	var err error
	if s.dir == nil {
		if s.dir, err = checkpoint.OpenPlace(w.Place, o); err != nil {
			return err
		}
	}
	plainly := w.Place
	plainly.Codec = "none"
	if s.quick, err = checkpoint.OpenPlace(plainly, o); err != nil {
		return err
	}
	live, err := w.Plan.pieces(rank, arrays)
	if err != nil {
		return err
	}
	s.mode = w.Mode
	if rank == 0 {
		s.plan = w.Plan
		s.mode.explain(s.log)
	}
	space, err := s.dir.Probe(ctx, "it")
	if err != nil {
		return err
	}
	if total := w.Plan.bytes(); rank == 0 && space.Total > 0 && space.Free < 2*uint64(total) {
		s.log.Warn("little room for checkpoints", "free_bytes", space.Free, "state_bytes", total, "file_system", space.Type)
	}
	s.mem = newCopies(live, s.mode.Copies)
	s.tier, err = s.openTier(w)
	return err
}

// warnOfTiers is rank 0's: it says once which ranks cannot use their nodes' own disks.
func (s *Saver) warnOfTiers(all []report[string]) {
	var ranks []int
	for rank, r := range all {
		if r.Value != "" {
			ranks = append(ranks, rank)
		}
	}
	if len(ranks) > 0 {
		s.log.Warn("node-local disk cannot be used: these ranks write to the shared folder directly; check the path",
			"path", s.o.Local, "ranks", few(ranks), "err", all[ranks[0]].Value)
	}
}

// few are numbers for a log: not all of a thousand.
func few(numbers []int) string {
	const most = 16
	if len(numbers) <= most {
		return fmt.Sprint(numbers)
	}
	return fmt.Sprintf("%v and %d more", numbers[:most], len(numbers)-most)
}
