package distributed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/failure"
)

var errNoDir = errors.New("rank 0 has no checkpoints folder")

// hello is what every rank reports to rank 0 about itself.
type hello struct {
	Arrays    []listing        `json:"arrays"`
	Options   sharedOptions    `json:"options"`
	Node      string           `json:"node,omitempty"` // set if there are replicas
	MaxMemory int64            `json:"max_memory"`
	Encode    int64            `json:"encode"` // bytes of buffers that encoding takes
	Failure   *failure.Failure `json:"failure,omitempty"`
}

// sharedOptions are the Options that must be the same on all ranks.
type sharedOptions struct {
	Async  bool `json:"async"`
	Delta  int  `json:"delta"`
	Local  bool `json:"local"`
	Peers  bool `json:"peers"`
	Check  bool `json:"check"`
	Errors int  `json:"errors"`
}

func (c sharedOptions) String() string {
	return fmt.Sprintf("async %v, delta %d, local tier %v, replicas %v, check %v, %d errors", c.Async, c.Delta, c.Local,
		c.Peers, c.Check, c.Errors)
}

// welcome is what rank 0 answers.
type welcome struct {
	Plan    plan                `json:"plan"`
	Mode    mode                `json:"mode"`
	Place   checkpoint.Location `json:"place"`
	Home    string              `json:"home"`    // the absolute path of the shared folder on rank 0
	Session uint32              `json:"session"` // distinguishes the files of this Saver from those of another
	// Partners holds, for each rank, the rank that keeps a replica of its shards; nil if there are no replicas.
	Partners []int `json:"partners,omitempty"`
}

// open is the collective part of New.
func (s *Saver) open(ctx context.Context, arrays []Array) error {
	lists, own := list(arrays)
	h := hello{
		Arrays: lists, MaxMemory: s.o.MaxMemory, Encode: encodeBytes(s.o.Workers), Failure: s.channel.failureOf(own), Node: s.o.Node,
		Options: sharedOptions{Async: s.o.Async, Delta: s.o.Delta, Local: s.o.Local != "", Peers: s.o.Peers != nil, Check: s.o.Check != nil,
			Errors: len(s.o.Errors)},
	}
	if s.o.Peers != nil {
		h.Encode += 2 * messageBytes // one to send, one to receive
	}
	w, err := exchange(ctx, s.channel, h, own, func(all []hello) (welcome, error) { return s.welcome(all, own) })
	if err != nil {
		return err
	}
	_, err = runOnEveryRank(ctx, s, func(ctx context.Context) (trouble, error) {
		own = s.prepare(ctx, w, arrays)
		return s.tier.trouble(), own
	}, func(all []valueOrFailure[trouble]) (struct{}, error) {
		s.warnOfTiers(all)
		return struct{}{}, s.channel.error(firstFailure(all), own)
	})
	if err != nil {
		return err
	}
	// Here the probes of all ranks have been removed from the disk.
	return runTogether(ctx, s, func(ctx context.Context) error {
		if s.channel.isCoordinator() {
			s.warnOfRoom(ctx, w.Plan.bytes())
		}
		return nil
	})
}

// welcome runs on rank 0: it checks the reports of all ranks, and plans. own is rank 0's error with its own arrays.
func (s *Saver) welcome(all []hello, own error) (welcome, error) {
	lists := make([][]listing, len(all))
	for rank, h := range all {
		if h.Failure != nil {
			return welcome{}, s.channel.error(h.Failure, own)
		}
		if first := all[0].Options; h.Options != first {
			return welcome{}, fmt.Errorf("rank %d has other options than rank 0: %v; rank 0 has %v", rank, h.Options, first)
		}
		lists[rank] = h.Arrays
	}
	if s.dir == nil {
		return welcome{}, errNoDir
	}
	location := s.dir.Location()
	if s.o.Local != "" && location.Run == "" {
		return welcome{}, errors.New("a node-local tier needs a run name, which distinguishes its files from those of other runs")
	}
	home, err := filepath.Abs(location.Path)
	if err != nil {
		return welcome{}, err
	}
	p, err := makePlan(lists)
	if err != nil {
		return welcome{}, err
	}
	loads := p.loads(len(all))
	if err := p.fits(location, p.writers(s.o.Local != ""), loads); err != nil {
		return welcome{}, err
	}
	return welcome{Plan: p, Mode: chooseMode(loads, all), Place: location, Home: home, Session: rand.Uint32(), Partners: s.partners(all)},
		nil
}

// partners runs on rank 0: it decides where replicas go, and warns if there can be none.
func (s *Saver) partners(all []hello) []int {
	if s.o.Peers == nil || s.o.Local == "" {
		return nil
	}
	nodes := make([]string, len(all))
	for rank, h := range all {
		nodes[rank] = h.Node
	}
	to := partners(nodes)
	if to == nil {
		s.log.Warn("shards on the node's own disk are not copied to another node: all ranks are on the same node", "node", s.o.Node)
	}
	return to
}

// prepare makes this rank ready to save, as w says.
func (s *Saver) prepare(ctx context.Context, w welcome, arrays []Array) error {
	rank := s.channel.group.Rank()
	o := checkpoint.Options{FS: s.o.FS, Workers: s.o.Workers, Log: s.log}
	var err error
	if s.dir == nil {
		if s.dir, err = checkpoint.OpenLocation(w.Place, o); err != nil {
			return err
		}
	}
	plainly := w.Place
	plainly.Codec = "none"
	if s.quick, err = checkpoint.OpenLocation(plainly, o); err != nil {
		return err
	}
	live, err := w.Plan.pieces(rank, arrays)
	if err != nil {
		return err
	}
	s.mode = w.Mode
	writers := w.Plan.writers(s.o.Local != "")
	s.shard = shardOf(rank, writers)
	if rank == 0 {
		s.plan, s.writers = w.Plan, writers
		s.mode.explain(s.log)
	}
	space, err := s.dir.Probe(ctx, "it")
	if err != nil {
		return err
	}
	s.space = space
	s.mem = newCopies(live, s.mode.Copies)
	loads := w.Plan.loads(s.channel.group.Size())
	bytes := loads[rank]
	for from, to := range w.Partners {
		if to == rank {
			bytes += loads[from]
		}
	}
	s.tier = s.openTier(ctx, w, bytes)
	s.replicas = s.newReplicas(w.Partners, writers)
	return nil
}

// warnOfRoom runs on rank 0: it warns if the checkpoints that the run keeps will not fit on the disk.
func (s *Saver) warnOfRoom(ctx context.Context, state int64) {
	space, err := s.o.FS.Space(s.dir.Location().Path)
	if err != nil || space.Total == 0 { // unknown
		return
	}
	room, err := s.dir.Room(ctx, state, s.mode.deltas())
	if err != nil {
		s.log.Warn("cannot find out how much room the checkpoints need", "err", err)
		return
	}
	if uint64(room.Need) > space.Free {
		s.log.Warn("too little free space for the checkpoints to keep: free space, or keep fewer (checkpoint.keep_last, keep_best)",
			"needs_bytes", room.Need, "free_bytes", space.Free, "each_bytes", room.Each, "at_once", room.Count, "there_bytes", room.There,
			"and_more", room.More, "file_system", s.space.Type)
	}
}
