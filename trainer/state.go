package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"unsafe"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/mpi"
)

// position is how far training has come. It is the same on every rank.
type position struct {
	Step    int64   `json:"step"`       // steps taken since the very start
	Epoch   int     `json:"epoch"`      // from 0
	Rows    int     `json:"epoch_rows"` // rows of this epoch's order that all ranks together have been given
	Done    int     `json:"epoch_step"` // steps taken in this epoch; if that is all of them, only the epoch's end may be missing
	LossSum float64 `json:"loss_sum"`   // sum of the mean losses of those steps
	EvalDue bool    `json:"look_due"`   // an evaluation is due once all ranks have the same parameters
	Best    best    `json:"best"`
}

// best is the best evaluation so far.
type best struct {
	Of    string  `json:"of"`    // what was compared, on which rows
	Step  int64   `json:"step"`  // the step after which it was made; 0: there was none
	Value float64 `json:"value"` // its loss or accuracy
	Since int     `json:"since"` // number of evaluations since that were not better
	Last  int64   `json:"last"`  // the step after which the last evaluation was made; an attempt that resumes there may make it again
}

// loss returns the mean over the steps taken in this epoch.
func (p position) loss() float64 {
	if p.Done == 0 {
		return 0
	}
	return p.LossSum / float64(p.Done)
}

// after returns the position after one more step, on rows with a mean loss.
func (p position) after(rows int, loss float64) position {
	p.Step++
	p.Rows += rows
	p.Done++
	p.LossSum += loss
	return p
}

func (p position) nextEpoch() position {
	return position{Step: p.Step, Epoch: p.Epoch + 1, Best: p.Best}
}

func (p position) validate(step int64) error {
	if p.Epoch < 0 || p.Epoch > maxEpochs || p.Rows < 0 || p.Done < 0 || p.Step != step || p.Step < int64(p.Done) ||
		p.Best.Step < 0 || p.Best.Step > p.Step || p.Best.Last > p.Step || p.Best.Since < 0 {
		return fmt.Errorf("%w: %s %+v of step %d is impossible", checkpoint.ErrCorrupt, keyPosition, p, step)
	}
	return nil
}

// samplerState is the position in terms of rows. The order is a function of seed and epoch, so
// no permutation has to be saved.
type samplerState struct {
	Seed      uint64 `json:"seed"`
	Epoch     int    `json:"epoch"`
	Next      int    `json:"next"` // rows of the epoch's order that all ranks together have been given
	Shuffle   bool   `json:"shuffle"`
	Remainder string `json:"remainder"`
}

// randomState says where random numbers come from. No generator has state between steps: initial
// values, the order of rows and dropout are functions of the seed.
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

// values returns the values of a checkpoint.
func (t *trainer) values() (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for key, value := range map[string]any{
		keyPosition: t.at,
		keySampler: samplerState{
			Seed: t.cfg.Seed, Epoch: t.at.Epoch, Next: t.at.Rows, Shuffle: t.cfg.Data.Shuffle, Remainder: t.cfg.Data.Remainder,
		},
		keyRandom: randomState{Kind: "mt19937", Seed: t.cfg.Seed},
		keyLR:     t.schedule.LR(t.at.Step),
		keyFacts:  t.facts,
		keyDigest: t.facts.digest(),
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("describe the state: %s: %w", key, err)
		}
		all[key] = text
	}
	return all, nil
}

// readValue decodes one value of c.
func readValue(c *checkpoint.Checkpoint, key string, to any) error {
	text, ok := c.Values()[key]
	if !ok {
		return fmt.Errorf("%w: it has no value %q; was it written by another program?", ErrMismatch, key)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%w: value %q: %w", checkpoint.ErrCorrupt, key, err)
	}
	return nil
}

// stateArray is a named array of the state, by reference.
type stateArray struct {
	Name  string
	Shape []int
	value []float32
	owner owner
}

// owner says which ranks save an array in a checkpoint. All ranks that have it read it back.
type owner int

const (
	ownedElsewhere owner = iota // other ranks; this rank's values are not saved
	ownedHere                   // this rank alone
	ownedByAll                  // all ranks that have it hold the same values and share the work
)

// arrays returns this rank's part of the state: parameters and buffers of its layers, what the optimizer keeps for the parameters that it
// updates, and what only this rank has. Names are unique over all ranks, except for copies.
func (t *trainer) arrays() []stateArray {
	var list []stateArray
	model := t.engine.model()
	for _, p := range model.Params() {
		list = append(list, stateArray{"model." + p.Name, p.Shape, p.Value, ownedByAll})
	}
	buffers := ownedElsewhere // each replica has its own running statistics, and the first one's are saved
	if t.topology.replica == 0 {
		buffers = ownedHere
	}
	for _, b := range model.Buffers() {
		list = append(list, stateArray{"model." + b.Name, b.Shape, b.Value, buffers})
	}
	slots := ownedByAll
	if t.cfg.Optimizer.Zero {
		slots = ownedHere
	}
	for _, s := range t.optimizer.State() {
		list = append(list, stateArray{"optimizer." + s.Name, s.Shape, s.Value, slots})
	}
	if t.scaler != nil {
		for _, s := range t.scaler.State() {
			list = append(list, stateArray{"optimizer." + s.Name, s.Shape, s.Value, ownedByAll})
		}
	}
	for _, s := range t.hookState() {
		list = append(list, stateArray{hookName(t.topology.replica, s.Name), s.Shape, s.Value, t.hookOwner(s)})
	}
	return list
}

// savedArrays returns the arrays that this rank saves. What a hook keeps may move in memory between steps, so its arrays are copies,
// which copyHookState refreshes.
func (t *trainer) savedArrays() []distributed.Array {
	var list []distributed.Array
	t.hookCopies = map[string][]float32{}
	for _, a := range t.arrays() {
		if a.owner == ownedElsewhere {
			continue
		}
		if _, name, ok := parseHookName(a.Name); ok {
			a.value = make([]float32, len(a.value))
			t.hookCopies[name] = a.value
		}
		array := distributed.Float32(a.Name, a.Shape, a.value)
		array.Replicated = a.owner == ownedByAll
		list = append(list, array)
	}
	return list
}

// totalBytes returns how many bytes all ranks save together, counting once what several hold alike. It is collective.
func (t *trainer) totalBytes(ctx context.Context, arrays []distributed.Array) (float64, error) {
	sum := make([]float64, 1)
	for _, a := range arrays {
		share := float64(len(a.Data))
		if a.Replicated {
			share /= float64(t.topology.replicas)
		}
		sum[0] += share
	}
	err := mpi.AllReduce(ctx, t.env.Comm, sum, mpi.Sum)
	return sum[0], err
}

// bytesOf returns the memory of v. It is little-endian on all machines on which ranks can form a group (see mpi.Init).
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
