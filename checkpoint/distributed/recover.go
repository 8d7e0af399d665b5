package distributed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/failure"
	"ddpbatch/internal/text"
)

// recover flushes the newest checkpoint that an earlier attempt has left complete on the nodes' own disks, if it is newer than
// all in the shared folder and no attempt has resumed from an earlier step since. The ranks may be on other nodes than
// they were, and may be fewer or more: each reports what its node has. It is collective.
func (s *Saver) recover(ctx context.Context) error {
	if s.tier == nil {
		return nil
	}
	list, err := s.recoverable(ctx)
	if err != nil {
		return fmt.Errorf("look for checkpoints on the nodes' own disks: %w", err)
	}
	for i := range list {
		for c := &list[i]; c != nil; {
			end, err := s.finish(ctx, *c)
			if err != nil {
				return err
			}
			if err = s.channel.error(end.Failure, nil); err == nil || !errors.Is(err, errLocal) {
				return err
			}
			if s.channel.isCoordinator() {
				s.log.Warn("checkpoint on the nodes' own disks is damaged", "folder", c.Folder, "replicas", end.Again != nil, "err", err)
			}
			c = end.Again
		}
	}
	return nil
}

// candidate is a save of an earlier attempt whose shards have all been found.
type candidate struct {
	Folder  string     `json:"folder"`
	Step    int64      `json:"step"`
	Holders [][]holder `json:"holders"` // for each shard: the rank that copies it, then the one to ask if the first finds it damaged
}

// without returns the candidate with other holders for damaged shards, or nil if a shard has no other holder.
func (c candidate) without(damaged []int) *candidate {
	c.Holders = slices.Clone(c.Holders)
	for _, i := range damaged {
		if c.Holders[i] = c.Holders[i][1:]; len(c.Holders[i]) == 0 {
			return nil
		}
	}
	return &c
}

// recoverable lists the saves that can be completed, newest first.
func (s *Saver) recoverable(ctx context.Context) ([]candidate, error) {
	var own error
	var found [][]foundShard
	_, err := runOnEveryRank(ctx, s, func(context.Context) (list []foundShard, err error) {
		if list, err = s.tier.scanAll(); err != nil {
			own = fmt.Errorf("%w: search %s: %w; keep the job off this node, or run it without the node-local tier to resume from "+
				"the shared folder",
				errLocal, s.tier.path, err)
		}
		return list, own
	}, func(all []valueOrFailure[[]foundShard]) (struct{}, error) {
		for _, r := range all {
			found = append(found, r.Value)
		}
		return struct{}{}, s.channel.error(firstFailure(all), own)
	})
	if err != nil {
		return nil, err
	}
	return runOnRank0(ctx, s, func(ctx context.Context) ([]candidate, error) { return s.worthRecovering(ctx, uncommittedSaves(found)) })
}

// worthRecovering runs on rank 0: it returns those of left that are newer than everything in the shared folder and not superseded.
func (s *Saver) worthRecovering(ctx context.Context, left []*uncommittedSave) (list []candidate, err error) {
	if len(left) == 0 {
		return nil, nil
	}
	// Damage in the shared folder is not logged here: the search for a checkpoint to resume from comes next and logs it.
	dir, err := checkpoint.OpenLocation(s.dir.Location(), checkpoint.Options{FS: s.o.FS})
	if err != nil {
		return nil, err
	}
	after := int64(-1)
	newest, err := dir.FindLatest(ctx)
	switch {
	case err == nil:
		after = newest.Step()
		closeCheckpoint(newest)
	case !errors.Is(err, checkpoint.ErrNone) && !errors.Is(err, checkpoint.ErrCorrupt):
		return nil, err
	}
	for _, l := range left {
		if l.name.step <= after {
			continue
		}
		givenUp, err := dir.GivenUp(ctx, l.name.attempt, l.name.step)
		switch {
		case err != nil:
			return nil, err
		case givenUp:
		case len(l.missing) > 0:
			s.log.Warn("save on the nodes' own disks is newer than all in the shared folder, but incomplete: it is lost unless the nodes "+
				"with the missing shards come back",
				"step", l.name.step, "attempt", l.name.attempt, "shards", len(l.seen), "missing", text.Few(l.missing, mostRanks))
		default:
			list = append(list, candidate{Folder: l.name.String(), Step: l.name.step, Holders: l.assignShards()})
		}
	}
	return list, nil
}

// copied is what a rank reports about the shards that it has copied.
type copied struct {
	Shards  map[int]checkpoint.ShardInfo `json:"shards"`
	Damaged []int                        `json:"damaged,omitempty"` // those that could not be copied
	First   *record                      `json:"first,omitempty"`   // the record of shard 0, which has what goes into the manifest
}

// finished is the result of finish.
type finished struct {
	Failure *failure.Failure `json:"failure,omitempty"`
	Again   *candidate       `json:"again,omitempty"` // what to try next if shards are damaged
}

// finish copies the shards of an earlier save into a new folder and commits it, as this attempt's. A failure is the same on every rank. err
// means that the ranks cannot continue together.
func (s *Saver) finish(ctx context.Context, c candidate) (end finished, err error) {
	var draft *checkpoint.Draft // rank 0's
	ticket, err := runOnRank0(ctx, s, func(ctx context.Context) (ticket []byte, err error) {
		if draft, err = s.dir.NewDraft(ctx, c.Step); err == nil {
			ticket = draft.Ticket()
		}
		return ticket, err
	})
	if err != nil {
		return end, err
	}
	var all []valueOrFailure[copied]
	f, err := runOnEveryRank(ctx, s, func(ctx context.Context) (copied, error) { return s.copyShards(ctx, c, draft, ticket) },
		func(reports []valueOrFailure[copied]) (*failure.Failure, error) {
			all = reports
			return firstFailure(reports), nil
		})
	if err == nil {
		end, err = runOnRank0(ctx, s, func(ctx context.Context) (end finished, err error) {
			if f == nil {
				f = s.channel.failureOf(s.commitRecovered(ctx, c, draft, all))
			}
			if f != nil {
				draft.Abort()
			}
			end.Failure = f
			if damaged := damagedOf(all); len(damaged) > 0 {
				end.Again = c.without(damaged)
			}
			return end, nil
		})
	} else if draft != nil {
		draft.Abort()
	}
	if err != nil || end.Failure != nil {
		return end, err
	}
	return end, runTogether(ctx, s, func(context.Context) error {
		for _, t := range []*tier{s.tier, s.tier.others} {
			t.sweepSave(filepath.Join(t.path, filepath.Base(c.Folder)))
		}
		return nil
	})
}

func damagedOf(all []valueOrFailure[copied]) (shards []int) {
	for _, r := range all {
		shards = append(shards, r.Value.Damaged...)
	}
	return shards
}

// copyShards copies the shards that rank 0 has assigned to this rank. draft is nil on other ranks than 0. If a shard is damaged it
// continues with the next, to find all damaged ones.
func (s *Saver) copyShards(ctx context.Context, c candidate, draft *checkpoint.Draft, ticket []byte) (all copied, err error) {
	if draft == nil {
		if draft, err = s.dir.JoinDraft(ticket); err != nil {
			return all, err
		}
		defer func() {
			if err != nil {
				draft.Abort()
			}
		}()
	}
	all.Shards = map[int]checkpoint.ShardInfo{}
	var damage error // the first
	for i, holders := range c.Holders {
		if holders[0].Rank != s.channel.group.Rank() {
			continue
		}
		l, err := s.tier.find(filepath.Base(c.Folder), i, len(c.Holders), holders[0].Replica)
		if err != nil {
			err = fmt.Errorf("%w: shard %d in %s: %w", errLocal, i, c.Folder, err)
		} else {
			all.Shards[i], err = s.tier.flush(ctx, l, draft)
		}
		switch {
		case errors.Is(err, errLocal):
			damage = cmp.Or(damage, err)
			all.Damaged = append(all.Damaged, i)
		case err != nil:
			return all, err
		case i == 0:
			all.First = &l.record
		}
	}
	return all, damage
}

// commitRecovered runs on rank 0, when all shards are durable in the draft.
func (s *Saver) commitRecovered(ctx context.Context, c candidate, draft *checkpoint.Draft, all []valueOrFailure[copied]) error {
	first := all[c.Holders[0][0].Rank].Value.First
	if first == nil || first.Meta == nil {
		return fmt.Errorf("%w: no rank has the record of shard 0", errLocal)
	}
	writers := first.Plan.writers(true)
	if len(writers) != len(c.Holders) {
		return fmt.Errorf("%w: %d shards in %s, but %d ranks have something to write", errLocal, len(c.Holders), c.Folder, len(writers))
	}
	m := checkpoint.Commit{
		World: first.World, Values: first.Meta.Values, Metrics: first.Meta.Metrics,
		Tensors: first.Plan.tensors(writers), Shards: make([]checkpoint.ShardInfo, len(writers)),
	}
	for i, holders := range c.Holders {
		m.Shards[i] = all[holders[0].Rank].Value.Shards[i]
	}
	saved, err := draft.Commit(ctx, m)
	if saved != nil {
		defer saved.Close()
	}
	if err != nil {
		return err
	}
	// A warning, because that attempt ended before it could do this itself.
	s.log.Warn("checkpoint flushed from the nodes' own disks, where an earlier attempt had left it",
		"step", saved.Step(), "attempt", first.Attempt, "path", saved.Info().Path)
	return nil
}
