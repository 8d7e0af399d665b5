package checkpoint

import (
	"context"
	"errors"
	"fmt"
)

// Latest loads the checkpoint that FindLatest would find if it read all data: every byte of it is
// as it was written. Errors are as FindLatest's.
func (d *Dir) Latest(ctx context.Context) (*State, Info, error) {
	var s *State
	c, err := d.latest(ctx, func(ctx context.Context, c *Checkpoint) (err error) {
		s, err = c.load(ctx)
		return err
	})
	if err != nil {
		return nil, Info{}, err
	}
	return s, c.Info(), c.Close()
}

// Load loads the checkpoint of a step, all of it verified; ErrNone where it is not committed. Of
// several saves of the step it takes the one that Find does.
func (d *Dir) Load(ctx context.Context, step int64) (*State, error) {
	var s *State
	c, err := d.find(ctx, step, func(ctx context.Context, c *Checkpoint) (err error) {
		s, err = c.load(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load checkpoint of step %d: %w", step, classify(err))
	}
	return s, c.Close()
}

// load reads the whole of c. The tensors are allocated only once the shards' tables have shown
// that they hold so many bytes.
func (c *Checkpoint) load(ctx context.Context) (*State, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	s := &State{Step: c.m.Step, World: c.m.World, Values: c.m.Values, Metrics: c.m.Metrics, Tensors: make([]Tensor, len(c.m.Tensors))}
	targets := make([]Target, len(c.m.Tensors))
	for i, t := range c.m.Tensors {
		s.Tensors[i] = Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: make([]byte, bytesOf(t))}
		targets[i] = Target{Name: t.Name, Data: s.Tensors[i].Data}
	}
	if err := c.Read(ctx, targets); err != nil {
		return nil, err
	}
	return s, nil
}

// Verify checks the save of a step that counts, and the manifests of the others: its manifest, and the sizes, tables and checksums of
// its shards; with readData also every byte, in little memory. ErrNone where the step is not
// committed.
func (d *Dir) Verify(ctx context.Context, step int64, readData bool) error {
	if err := d.verify(ctx, step, readData); err != nil {
		return fmt.Errorf("verify checkpoint of step %d: %w", step, classify(err))
	}
	return nil
}

func (d *Dir) verify(ctx context.Context, step int64, readData bool) error {
	s, err := d.search(ctx)
	if err != nil {
		return err
	}
	candidates, bad, err := s.ofStep(ctx, step, true)
	if err := errors.Join(bad, err); err != nil {
		return err
	}
	if len(candidates) == 0 {
		return fmt.Errorf("%w: step %d is not committed in %s", ErrNone, step, d.path)
	}
	c := candidates[0]
	err = c.check(ctx)
	if err == nil && readData {
		err = c.Verify(ctx)
	}
	return errors.Join(err, c.Close())
}
