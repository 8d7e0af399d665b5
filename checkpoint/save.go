package checkpoint

import (
	"context"
	"fmt"

	"ddpbatch/checkpoint/internal/manifest"
)

// Save commits a checkpoint of s, by this process alone, and removes what Options.Keep no longer
// wants. When it returns nil the checkpoint is durable. It only reads s. A step that has a
// checkpoint already gets another one, which counts from then on, unless a later attempt has saved
// or given up the step: then nothing is saved (ErrFenced). Errors are as Commit's; an Info whose
// Committed is true comes with the error of a commit that stands.
func (d *Dir) Save(ctx context.Context, s *State) (Info, error) {
	if err := d.recordable(s); err != nil {
		return Info{}, fmt.Errorf("save checkpoint of step %d: %w", s.Step, err)
	}
	dr, err := d.NewDraft(ctx, s.Step)
	if err != nil {
		return Info{}, err
	}
	defer dr.Abort()
	written, err := dr.WriteShard(ctx, 0, 1, s.pieces())
	if err != nil {
		return Info{}, err
	}
	if s.Check != nil {
		if err := s.Check(); err != nil {
			return Info{}, fmt.Errorf("save checkpoint of step %d: %w", s.Step, err)
		}
	}
	c := s.commit()
	c.Shards = []ShardInfo{written}
	committed, err := dr.Commit(ctx, c)
	if committed == nil {
		return Info{}, err
	}
	return committed.Info(), err
}

// recordable proves that the manifest of a state can be read back: what cannot is refused before
// anything is written.
func (d *Dir) recordable(s *State) error {
	if err := s.validate(); err != nil {
		return err
	}
	tag := manifest.Tag{Attempt: d.opt.Attempt, Run: d.run}
	c := s.commit()
	raw := int64(0)
	for _, t := range s.Tensors {
		raw += t.size()
	}
	c.Shards = []ShardInfo{{File: tag.ShardName(0, 1), Size: manifest.MaxShardBytes, Raw: raw}}
	_, err := d.manifestOf(tag, s.Step, c).Encode()
	return err
}
