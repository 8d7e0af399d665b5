package distributed

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/failure"
)

// Resume lets rank 0 choose the newest good checkpoint, and calls accept on every rank to read what the rank needs of it. With a node-local
// tier it first completes the newest save that an earlier attempt has left complete on the nodes' own disks. If accept returns
// checkpoint.ErrCorrupt on any rank, rank 0 rejects that checkpoint and all ranks try the one before it; any other error is returned on
// every rank. Once all ranks accept, rank 0 records what the attempt resumes from. The checkpoint stays open; the caller closes it.
// If there is no checkpoint, Resume records that and returns checkpoint.ErrNone. If all are corrupt, it returns checkpoint.ErrCorrupt. It
// is collective, and must come before the first Save. accept runs on a goroutine of its own, while the caller waits.
func (s *Saver) Resume(ctx context.Context, accept func(c *checkpoint.Checkpoint) error) (*checkpoint.Checkpoint, error) {
	c, err := s.resume(ctx, accept)
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	return c, nil
}

// Begin records that the attempt begins without a checkpoint. If there are checkpoints it warns: those of earlier attempts are superseded,
// and so is what they have left on the nodes' own disks. It is collective, and takes the place of Resume. A
// restart within the attempt that calls it again gives up what was saved since (see checkpoint.Dir.FirstBegun).
func (s *Saver) Begin(ctx context.Context) error {
	if _, err := runOnRank0(ctx, s, func(ctx context.Context) (struct{}, error) {
		s.warnOfGivenUp(ctx)
		return struct{}{}, nil
	}); err != nil {
		return fmt.Errorf("begin from nothing: %w", err)
	}
	if err := s.begin(ctx, nil); err != nil {
		return fmt.Errorf("begin from nothing: %w", err)
	}
	return nil
}

// warnOfGivenUp logs what will be superseded. An error in reading it does not prevent the beginning.
func (s *Saver) warnOfGivenUp(ctx context.Context) {
	c, err := s.dir.FindLatest(ctx)
	switch {
	case err == nil:
		s.log.Warn(fmt.Sprintf("run begins anew although there is a checkpoint of step %d, which is now superseded", c.Step()), "step",
			c.Step(), "path", c.Info().Path)
		closeCheckpoint(c)
	case !errors.Is(err, checkpoint.ErrNone):
		s.log.Warn("run begins anew although there are checkpoints, which cannot be read", "err", err)
	}
}

func (s *Saver) resume(ctx context.Context, accept func(c *checkpoint.Checkpoint) error) (*checkpoint.Checkpoint, error) {
	if err := s.recover(ctx); err != nil {
		return nil, err
	}
	tries := map[string]int{}
	var rejected error // why the newest rejected checkpoint was rejected
	var newest string  // its folder
	for {
		c, err := s.offer(ctx, rejected)
		if err != nil {
			return nil, err
		}
		if c.none != nil {
			if err := s.begin(ctx, nil); err != nil {
				return nil, err
			}
			return nil, c.none
		}
		why, corrupt, err := s.judge(ctx, c, accept)
		if why == nil && err == nil {
			if err = s.begin(ctx, c.Checkpoint); err == nil {
				if rejected != nil && c.folder != newest && s.channel.isCoordinator() {
					s.log.Warn("resuming from the checkpoint before the rejected one", "step", c.Step(), "path", c.Info().Path)
				}
				return c.Checkpoint, nil
			}
		}
		tries[c.folder]++
		if corrupt {
			err = s.reject(ctx, c, why, tries[c.folder])
		} else if err == nil {
			err = why
		}
		closeCheckpoint(c.Checkpoint)
		if err != nil {
			return nil, err
		}
		if rejected == nil {
			rejected, newest = why, c.folder
		}
	}
}

// offered is the checkpoint that rank 0 proposes, as this rank sees it.
type offered struct {
	*checkpoint.Checkpoint // nil if it cannot be opened here
	folder                 string
	err                    error // why it cannot
	none                   error // checkpoint.ErrNone if there is no checkpoint; the same on all ranks
}

// proposal is rank 0's message about it.
type proposal struct {
	Folder string           `json:"folder"`
	None   *failure.Failure `json:"none,omitempty"`
}

// offer finds a checkpoint on rank 0 and opens it on all ranks. Its manifest is sent over the network, because a network file system may
// show another node an older one.
func (s *Saver) offer(ctx context.Context, rejected error) (o offered, err error) {
	var found *checkpoint.Checkpoint
	var none error
	var data []byte
	p, err := runOnRank0(ctx, s, func(ctx context.Context) (p proposal, err error) {
		found, err = s.dir.FindForResume(ctx)
		switch {
		case err == nil:
			p.Folder, data = found.Folder(), found.Manifest()
		case rejected != nil && (errors.Is(err, checkpoint.ErrNone) || errors.Is(err, checkpoint.ErrCorrupt)):
			f := s.channel.failureOf(rejected)
			f.Text = fmt.Sprintf("%v; the newest was rejected: %s", err, f.Text)
			err = s.channel.error(f, nil)
		case errors.Is(err, checkpoint.ErrNone):
			none = err
			p.None, err = s.channel.failureOf(err), nil
		}
		return p, err
	})
	if err == nil && p.None == nil {
		data, err = s.channel.group.Broadcast(ctx, data)
	}
	if err != nil {
		closeCheckpoint(found)
		return o, err
	}
	if p.None != nil {
		return offered{none: s.channel.error(p.None, none)}, nil
	}
	o = offered{Checkpoint: found, folder: p.Folder}
	if found == nil {
		o.Checkpoint, o.err = s.dir.OpenManifest(o.folder, data)
	}
	return o, nil
}

// judgement is the result of all ranks for a checkpoint.
type judgement struct {
	Failure *failure.Failure `json:"failure,omitempty"` // nil: it is good
	Corrupt bool             `json:"corrupt"`
}

// judge calls accept on all ranks. An error that does not blame the checkpoint takes precedence over those that do. All ranks get the same
// judgement, because an error may match several classes, and the ranks must take the same way.
func (s *Saver) judge(ctx context.Context, c offered, accept func(*checkpoint.Checkpoint) error) (why error, corrupt bool, err error) {
	var own error
	b, err := runOnEveryRank(ctx, s, func(context.Context) (struct{}, error) {
		if own = c.err; own == nil {
			own = accept(c.Checkpoint)
		}
		return struct{}{}, own
	}, func(all []valueOrFailure[struct{}]) (b judgement, err error) {
		b.Failure = firstFailure(all)
		b.Corrupt = b.Failure != nil
		for _, r := range all {
			if r.Failure != nil && !errors.Is(s.channel.error(r.Failure, nil), checkpoint.ErrCorrupt) {
				return judgement{Failure: r.Failure}, nil
			}
		}
		return b, nil
	})
	if err != nil {
		return nil, false, err
	}
	return s.channel.error(b.Failure, own), b.Corrupt, nil
}

// reject takes a corrupt checkpoint out of use, so that the one before it can be tried. nil means that all ranks continue. If
// rank 0 finds the checkpoint good, it is tried once more: the other rank may have read an old view, or have faulty memory.
func (s *Saver) reject(ctx context.Context, c offered, why error, tries int) error {
	_, err := runOnRank0(ctx, s, func(ctx context.Context) (struct{}, error) {
		s.log.Warn("checkpoint was found corrupt as it was read: reading it again", "folder", c.folder, "err", why)
		err := s.dir.Reject(ctx, c.Checkpoint)
		switch {
		case err == nil || errors.Is(err, checkpoint.ErrFenced):
			return struct{}{}, err
		case tries < 2:
			s.log.Warn("corrupt checkpoint was not rejected: trying it once more", "folder", c.folder, "err", err)
			return struct{}{}, nil
		}
		f := s.channel.failureOf(why)
		f.Text = fmt.Sprintf("%s; it is still there: %v", f.Text, err)
		return struct{}{}, s.channel.error(f, nil)
	})
	return err
}

// begin records what this attempt resumes from.
func (s *Saver) begin(ctx context.Context, from *checkpoint.Checkpoint) error {
	_, err := runOnRank0(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.dir.Begin(ctx, from) })
	s.begun = s.begun || err == nil
	return err
}

// closeCheckpoint closes a checkpoint that was only read from.
func closeCheckpoint(c *checkpoint.Checkpoint) {
	if c != nil {
		c.Close()
	}
}
