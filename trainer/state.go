package trainer

import (
	"encoding/json"
	"fmt"
	"slices"

	"ddpbatch/checkpoint"
)

// position is how far training has come. It is the same on every rank.
type position struct {
	Step    int64   `json:"step"`       // steps taken since the very start
	Epoch   int     `json:"epoch"`      // from 0
	Done    int     `json:"epoch_step"` // steps taken in this epoch; with all of them only its end may be missing
	LossSum float64 `json:"loss_sum"`   // of the mean losses of those
}

// loss is the mean over the steps taken in this epoch.
func (p position) loss() float64 {
	if p.Done == 0 {
		return 0
	}
	return p.LossSum / float64(p.Done)
}

func (p position) nextEpoch() position { return position{Step: p.Step, Epoch: p.Epoch + 1} }

// samplerState is the position told in terms of rows. Order is a function of seed and epoch, so that
// no permutation needs to be saved.
type samplerState struct {
	Seed    uint64 `json:"seed"`
	Epoch   int    `json:"epoch"`
	Next    int    `json:"next"` // rows of this epoch that each rank has been given
	Shuffle bool   `json:"shuffle"`
}

// randomState says where random numbers come from. No generator lives on between steps: initial
// values and the order of rows are functions of the seed.
type randomState struct {
	Kind string `json:"kind"`
	Seed uint64 `json:"seed"`
}

// Keys of a checkpoint's values.
const (
	keyPosition = "position"
	keySampler  = "sampler"
	keyRandom   = "random"
	keyLR       = "lr"
	keyFacts    = "job"
	keyDigest   = "config_digest"
)

// array is one named array of the state that a checkpoint holds, by reference.
type array struct {
	name  string
	shape []int
	value []float32
}

// arrays are the parameters and the optimizer's state.
func (t *trainer) arrays() []array {
	var all []array
	for _, p := range t.model.Params() {
		all = append(all, array{"model." + p.Name, p.Shape, p.Value})
	}
	for _, s := range t.optimizer.State() {
		all = append(all, array{"optimizer." + s.Name, s.Shape, s.Value})
	}
	return all
}

// state is a copy of everything that is needed to go on.
func (t *trainer) state() (*checkpoint.State, error) {
	s := &checkpoint.State{Step: t.at.Step, World: t.env.Comm.Size(), Values: map[string]json.RawMessage{}}
	for _, a := range t.arrays() {
		s.Tensors = append(s.Tensors, checkpoint.Float32Tensor(a.name, a.shape, a.value))
	}
	next := min(t.at.Done*t.cfg.BatchSize, t.sampler.Len())
	for key, value := range map[string]any{
		keyPosition: t.at,
		keySampler:  samplerState{Seed: t.cfg.Seed, Epoch: t.at.Epoch, Next: next, Shuffle: t.cfg.Data.Shuffle},
		keyRandom:   randomState{Kind: "mt19937", Seed: t.cfg.Seed},
		keyLR:       t.cfg.Optimizer.LR,
		keyFacts:    t.facts,
		keyDigest:   t.facts.digest(),
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("describe the state: %s: %w", key, err)
		}
		s.Values[key] = text
	}
	return s, nil
}

// restore makes parameters, optimizer and position those of s. Where s does not fit, nothing is changed.
func (t *trainer) restore(s *checkpoint.State) error {
	var saved facts
	if err := read(s, keyFacts, &saved); err != nil {
		return err
	}
	if d := t.facts.differences(saved); d != "" {
		return fmt.Errorf("%w: %s; change the job back, or start a new run", ErrMismatch, d)
	}
	var at position
	if err := read(s, keyPosition, &at); err != nil {
		return err
	}
	steps := t.stepsPerEpoch()
	if at.Epoch < 0 || at.Epoch > maxEpochs || at.Done < 0 || at.Done > steps ||
		at.Step != s.Step || at.Step != int64(at.Epoch)*int64(steps)+int64(at.Done) {
		return fmt.Errorf("%w: %s %+v is impossible with %d steps an epoch", checkpoint.ErrCorrupt, keyPosition, at, steps)
	}
	if err := t.fill(s.Tensors); err != nil {
		return err
	}
	t.at = at
	return nil
}

// fill copies tensors into the arrays of their names, all or none.
func (t *trainer) fill(tensors []checkpoint.Tensor) error {
	byName := map[string]checkpoint.Tensor{}
	for _, tensor := range tensors {
		byName[tensor.Name] = tensor
	}
	all := t.arrays()
	for _, a := range all {
		tensor, ok := byName[a.name]
		switch {
		case !ok:
			return fmt.Errorf("%w: it has no %s", ErrMismatch, a.name)
		case tensor.DType != "float32" || !slices.Equal(tensor.Shape, a.shape):
			return fmt.Errorf("%w: %s is %s %v in the checkpoint and float32 %v here",
				ErrMismatch, a.name, tensor.DType, tensor.Shape, a.shape)
		}
	}
	if len(tensors) != len(all) {
		return fmt.Errorf("%w: it has %d arrays, this model and optimizer have %d", ErrMismatch, len(tensors), len(all))
	}
	for _, a := range all {
		if err := byName[a.name].Float32s(a.value); err != nil {
			return err
		}
	}
	return nil
}

// read decodes one value of s.
func read(s *checkpoint.State, key string, to any) error {
	text, ok := s.Values[key]
	if !ok {
		return fmt.Errorf("%w: it has no value %q; was it written by another program?", ErrMismatch, key)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%w: value %q: %w", checkpoint.ErrCorrupt, key, err)
	}
	return nil
}
