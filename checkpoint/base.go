package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
)

// sameLayout says why a checkpoint cannot be the base of a delta: that must be a full one with
// the same tensors in the same places.
func sameLayout(delta, base *manifest.Manifest) error {
	if base.Base != nil {
		return errors.New("it is a delta itself")
	}
	if base.Step > delta.Step {
		return fmt.Errorf("its step is %d, after step %d", base.Step, delta.Step)
	}
	same := slices.EqualFunc(delta.Tensors, base.Tensors, func(a, b manifest.Tensor) bool {
		return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && slices.Equal(a.Pieces, b.Pieces)
	})
	if !same || len(delta.Shards) != len(base.Shards) {
		return errors.New("its tensors are others, or are spread over the shards in another way")
	}
	return nil
}

// stillThere says, by reading the manifest again, that nobody has removed or replaced c.
func (c *Checkpoint) stillThere() error {
	now, err := c.d.readFile(c.manifestPath(), manifest.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		if err := c.d.absent(c.manifestPath()); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s has been removed", ErrNone, c.path())
	}
	if err == nil && !bytes.Equal(now, c.data) {
		err = corrupt(c.manifestPath(), "it has changed")
	}
	return err
}
