package manifest

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// check holds the fields against their limits and against each other.
func (m *Manifest) check() error {
	switch {
	case len(m.Run) > MaxName:
		return fmt.Errorf("run has a name of %d bytes, at most %d are allowed", len(m.Run), MaxName)
	case m.Step < 0 || m.Step > MaxStep:
		return fmt.Errorf("step is %d", m.Step)
	case m.World < 1 || m.World > MaxWorld:
		return fmt.Errorf("world is %d", m.World)
	case m.Attempt < 0 || m.Attempt > MaxAttempt:
		return fmt.Errorf("attempt is %d", m.Attempt)
	case len(m.Tensors) > MaxTensors:
		return fmt.Errorf("%d tensors, at most %d are allowed", len(m.Tensors), MaxTensors)
	case len(m.Values) > MaxValues || len(m.Metrics) > MaxValues:
		return fmt.Errorf("%d values and %d metrics, at most %d of each are allowed", len(m.Values), len(m.Metrics), MaxValues)
	case len(m.Shards) < 1 || len(m.Shards) > MaxShards:
		return fmt.Errorf("%d shards, 1 to %d are allowed", len(m.Shards), MaxShards)
	}
	if m.Base != nil {
		if err := m.Base.check(m.Step); err != nil {
			return err
		}
	}
	for i, s := range m.Shards {
		if !isShardName(s.File, i, len(m.Shards)) {
			return fmt.Errorf("shard %d has the file name %s", i, quote(s.File))
		}
		if s.Size < MinShardBytes || s.Raw < 0 || s.Raw > MaxRawBytes || s.Size > MaxShardBytes {
			return fmt.Errorf("shard %d has %d bytes, %d raw", i, s.Size, s.Raw)
		}
	}
	if err := m.checkTensors(); err != nil {
		return err
	}
	return m.checkShards()
}

// check holds a base against the step of the checkpoint that builds on it.
func (b *Base) check(step int64) error {
	f, ok := ParseFolder(b.Folder)
	if !ok || f.Broken || f.Step != b.Step {
		return fmt.Errorf("the base is step %d in the folder %s", b.Step, quote(b.Folder))
	}
	if b.Step > step {
		return fmt.Errorf("the base is of step %d, after step %d", b.Step, step)
	}
	return nil
}

// checkTensors looks at every tensor, and at its pieces as far as the tensor goes.
func (m *Manifest) checkTensors() error {
	seen := make(map[string]bool, len(m.Tensors))
	pieces := 0
	for _, t := range m.Tensors {
		if err := CheckTensorName(t.Name); err != nil {
			return err
		}
		if seen[t.Name] {
			return fmt.Errorf("tensor %s is there twice", quote(t.Name))
		}
		seen[t.Name] = true
		if pieces += len(t.Pieces); pieces > MaxPieces {
			return fmt.Errorf("more than %d pieces", MaxPieces)
		}
		if err := m.checkTensor(t); err != nil {
			return fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
	}
	return nil
}

func (m *Manifest) checkTensor(t Tensor) error {
	size, err := ByteSize(t.DType, t.Shape)
	if err != nil {
		return err
	}
	if t.Shape == nil {
		return errors.New("it has no shape") // a scalar's is empty
	}
	elem, _ := ElemSize(t.DType)
	var end int64
	for _, p := range t.Pieces {
		switch {
		case p.Shard < 0 || p.Shard >= len(m.Shards):
			return fmt.Errorf("it is in shard %d of %d", p.Shard, len(m.Shards))
		case p.Start != end:
			return fmt.Errorf("a piece begins at byte %d, the one before ends at %d", p.Start, end)
		case p.Start%int64(elem) != 0:
			return fmt.Errorf("a piece begins at byte %d, within an element of %s", p.Start, t.DType)
		case p.Length < 0 || p.Length == 0 && m.Version != 1:
			return fmt.Errorf("a piece has %d bytes", p.Length)
		case p.Length > size-end:
			return fmt.Errorf("shape %v of %s needs %d bytes, its pieces have more", t.Shape, t.DType, size)
		}
		end += p.Length
	}
	if end != size {
		return fmt.Errorf("shape %v of %s needs %d bytes, its pieces have %d", t.Shape, t.DType, size, end)
	}
	return nil
}

// checkShards looks whether the pieces of every shard fill it.
func (m *Manifest) checkShards() error {
	for i, refs := range m.ByShard() {
		var end int64
		for _, r := range refs {
			if r.Offset != end {
				return fmt.Errorf("tensor %s begins at %d of shard %d, the piece before ends at %d",
					quote(m.Tensors[r.Tensor].Name), r.Offset, i, end)
			}
			if r.Length > m.Shards[i].Raw-end {
				return fmt.Errorf("tensor %s ends behind shard %d", quote(m.Tensors[r.Tensor].Name), i)
			}
			end += r.Length
		}
		if end != m.Shards[i].Raw {
			return fmt.Errorf("shard %d holds %d raw bytes, its tensors %d", i, m.Shards[i].Raw, end)
		}
	}
	return nil
}

// CheckTensorName refuses a name that is not 1 to MaxName bytes of UTF-8 without control
// characters.
func CheckTensorName(name string) error {
	if len(name) == 0 || len(name) > MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("tensor name %s is not 1 to %d bytes of UTF-8", quote(name), MaxName)
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("tensor name %s has a control character", quote(name))
		}
	}
	return nil
}
